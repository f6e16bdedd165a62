//go:build check && linux

package servers

const namedRole = "named"

func serveNamed() int { return 1 }
