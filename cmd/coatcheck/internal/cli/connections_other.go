//go:build !unix

package cli

// descriptorLimit is not known here.
func descriptorLimit() (n uint64, known bool) { return 0, false }
