// Package lazyregexp compiles regular expressions when they are first used, so that a program whose
// command uses few of them starts sooner.
package lazyregexp

import (
	"regexp"
	"sync"
)

// New returns a function that returns the expression. Its first call compiles it, and panics if it
// is not valid. Any number of goroutines may call it at once.
func New(expression string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expression) })
}
