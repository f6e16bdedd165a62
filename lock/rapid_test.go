//go:build !check

package lock

import "flag"

// A few histories will do for the middle of a change; -rapid.checks on the command line wins.
func init() {
	if err := flag.Set("rapid.checks", "20"); err != nil {
		panic(err)
	}
}
