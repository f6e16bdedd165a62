package access_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/access"
)

func TestNamesByEntries(t *testing.T) {
	for _, row := range []struct{ entries, in, out string }{
		{"", "a orders:1 *", ""},
		{"*", "a orders:1", ""},
		{"orders:*", "orders: orders:1 orders:a:b", "orders orders. Orders:1 xorders:1 order"},
		{"orders", "orders", "orders: orders:1 order ordersx"},
		{"orders orders:*", "orders orders:1", "orders2 bills"},
		{"orders:* bills", "orders:1 bills", "bills:1 bill"},
		{"a*", "a ab", "b"},
	} {
		names := access.Names(strings.Fields(row.entries))
		for name := range strings.FieldsSeq(row.in) {
			if !names.Allow(name) {
				t.Errorf("%q does not allow %q", row.entries, name)
			}
		}
		for name := range strings.FieldsSeq(row.out) {
			if names.Allow(name) {
				t.Errorf("%q allows %q", row.entries, name)
			}
		}
		if names.Allow("") != names.All() {
			t.Errorf("%q: the empty name", row.entries)
		}
	}
}

// Spans are right if they hold exactly the allowed names that begin with the prefix, each once, in
// order.
func FuzzSpans(f *testing.F) {
	f.Add("orders:* orders bills a*", "o")
	f.Add("a a* ab* b", "a")
	f.Add("", "x")
	f.Add("* a", "a")
	f.Fuzz(func(t *testing.T, entries, prefix string) {
		names := access.Names(strings.Fields(entries))
		var all []string
		for _, one := range append(strings.Fields(entries), "a", "ab", "orders", prefix, prefix+"x") {
			begin := strings.TrimSuffix(one, "*")
			all = append(all, begin, begin+"a", begin+":1", begin[:len(begin)/2])
		}
		slices.Sort(all)
		all = slices.Compact(all)
		var want, got []string
		for _, name := range all {
			if name != "" && strings.HasPrefix(name, prefix) && names.Allow(name) {
				want = append(want, name)
			}
		}
		for _, span := range names.Spans(prefix) {
			for _, name := range all {
				if name != "" && strings.HasPrefix(name, span.Prefix) && (!span.Exact || name == span.Prefix) {
					got = append(got, name)
				}
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q from %q: %q, want %q by %+v", entries, prefix, got, want, names.Spans(prefix))
		}
	})
}
