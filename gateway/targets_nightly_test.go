//go:build nightly

package gateway

import (
	"slices"
	"strings"
	"testing"
)

// FuzzRequestLines looks for lines that no test has.
func FuzzRequestLines(f *testing.F) {
	for _, line := range targets {
		f.Add(line, "x")
	}
	for _, host := range hosts {
		f.Add("POST /payments HTTP/1.1", host)
	}
	p := newProber(f, slices.DeleteFunc(slices.Clone(frameworks), func(one framework) bool {
		// the others take longer
		return !strings.HasPrefix(one.name, "Node") && !strings.HasPrefix(one.name, "Python") && !strings.HasPrefix(one.name, "Go")
	}))
	f.Fuzz(func(t *testing.T, line, host string) { p.probe(t, len(line)%len(named), line, host) })
}
