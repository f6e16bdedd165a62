//go:build !check

package cli

// withRaces reports whether processes of their own run with the race detector: see built.
const withRaces = false
