// Package version says which version of coatcheck this tree is: one place, which the programs, the
// chart, the clients and the pages are compared with.
package version

// Version is this tree's, by Semantic Versioning. A build between two releases has that of the one
// which comes next.
const Version = "1.0.0-rc.2"
