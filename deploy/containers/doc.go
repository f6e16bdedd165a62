// Package containers starts docker-compose.yml for real: `make compose-check`. It has tests alone,
// with the build tag compose.
//
// They start a Docker engine of their own, with its data folder, its socket and its bridge, and end
// it by its process id. No image is pulled: the one of Redis is an import of this machine's
// redis-server with a shell around it, and those of coatcheck are the Dockerfile's last stage
// around a fresh build, and the image file of a release, to which it is upgraded. What runs is
// docker-compose.yml but for the names of images, and for ports, which are free ones. It needs
// root, Linux, and Debian's docker.io and docker-compose, which `make compose-check` installs.
//
// The profile valkey runs where valkey-server is on the PATH; observe, whose images cannot be made
// from Debian's packages, does not.
package containers
