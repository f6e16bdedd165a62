package access

import (
	"fmt"
	"slices"
	"strings"

	"github.com/coatcheck/coatcheck/internal/names"
)

// Names are the names that a caller may touch: counter keys, pools, tags, locks, scopes. Each is
// one name, or what names begin with and a star after it: orders:*. A star alone, or nil, is every
// name; a list without entries is refused where records are read. It is read-only.
type Names []string

// maxNames is how many entries a record can have.
const maxNames = 100

func (n Names) check() (faults []string) {
	if n != nil && len(n) == 0 {
		faults = append(faults, "an empty list; leave it out, or write *, for all names")
	}
	if len(n) > maxNames {
		faults = append(faults, fmt.Sprintf("up to %d entries", maxNames))
	}
	for i, one := range n {
		if begin := strings.TrimSuffix(one, "*"); one != "*" && !names.Valid(begin) || len(one) > names.Max {
			faults = append(faults, fmt.Sprintf("entry %d is neither a name nor the beginning of names with a star after it, such "+
				"as orders:*", i+1))
		}
	}
	return faults
}

// All reports whether these are all names.
func (n Names) All() bool { return len(n) == 0 || slices.Contains(n, "*") }

// Allow reports whether a name is one of them. The empty name is none, unless all are.
func (n Names) Allow(name string) bool {
	return len(n) == 0 || slices.ContainsFunc(n, func(one string) bool { return covers(one, name) })
}

func covers(entry, name string) bool {
	if begin, open := strings.CutSuffix(entry, "*"); open {
		return strings.HasPrefix(name, begin)
	}
	return entry == name
}

// Span is a range of names in byte order: all that begin with Prefix, or with Exact Prefix alone.
type Span struct {
	Prefix string
	Exact  bool
}

// Spans returns the allowed names that begin with a prefix, as spans apart, in byte order.
func (n Names) Spans(prefix string) (spans []Span) {
	if n.All() {
		return []Span{{Prefix: prefix}}
	}
	for _, one := range n {
		begin, open := strings.CutSuffix(one, "*")
		switch {
		case open && strings.HasPrefix(prefix, begin):
			return []Span{{Prefix: prefix}}
		case strings.HasPrefix(begin, prefix):
			spans = append(spans, Span{begin, !open})
		}
	}
	slices.SortFunc(spans, func(a, b Span) int {
		if by := strings.Compare(a.Prefix, b.Prefix); by != 0 || a.Exact == b.Exact {
			return by
		}
		if b.Exact {
			return -1 // what covers the other comes first
		}
		return 1
	})
	var apart []Span
	for _, span := range spans {
		if last := len(apart) - 1; last >= 0 && (apart[last] == span ||
			!apart[last].Exact && strings.HasPrefix(span.Prefix, apart[last].Prefix)) {
			continue
		}
		apart = append(apart, span)
	}
	return apart
}
