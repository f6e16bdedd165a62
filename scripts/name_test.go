package scripts_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/scripts"
)

var nameKey = []string{"{names}"}

func (b *box) name(names ...string) {
	b.Helper()
	for _, name := range names {
		want(b, b.run(scripts.NameAdd, nameKey, name), "ok")
	}
}

func (b *box) names(prefix, behind string, n int) []string {
	b.Helper()
	reply := b.run(scripts.NameList, nameKey, prefix, behind, n)
	if reply[0] != "ok" {
		b.Fatalf("name_list of %d behind %q that begin with %q: got %q, want ok", n, behind, prefix, reply)
	}
	return reply[1:]
}

func TestNamesAreListedInTheOrderOfTheirBytes(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		expect.Equal(t, "names on an empty list", len(b.names("", "", 10)), 0)
		b.name("b", "a:2", "Z", "a", "_", "a:10", "~", "a-1", "a", "0", "ab")
		before := b.look(nameKey...)
		b.name("a", "~")
		b.same(before)
		for _, row := range []struct {
			prefix, behind string
			n              int
			names          string
		}{
			{"", "", 100, "0 Z _ a a-1 a:10 a:2 ab b ~"},
			{"", "", 3, "0 Z _"},
			{"", "_", 3, "a a-1 a:10"},
			{"", "nobody", 3, "~"},
			{"", "~", 3, ""},
			{"a", "", 100, "a a-1 a:10 a:2 ab"},
			{"a", "a", 2, "a-1 a:10"},
			{"a", "a:2", 100, "ab"},
			{"a", "ab", 100, ""},
			{"a:", "", 100, "a:10 a:2"},
			{"a:", "a", 100, "a:10 a:2"}, // after a name that comes before all that begin so
			{"a:", "Z", 1, "a:10"},
			{"a", "b", 100, ""}, // and after one that comes after them
			{"~", "", 100, "~"},
			{"x", "", 100, ""},
		} {
			if got := b.names(row.prefix, row.behind, row.n); strings.Join(got, " ") != row.names {
				t.Errorf("%q behind %q, %d at most: got %q, want %s", row.prefix, row.behind, row.n, got, row.names)
			}
		}
		b.same(before)
	})
}

func TestNameThatIsTakenOffIsListedNoMore(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		want(t, b.run(scripts.NameRemove, nameKey, "a"), "ok")
		b.name("a", "b", "c")
		for range 2 {
			want(t, b.run(scripts.NameRemove, nameKey, "b"), "ok")
		}
		want(t, b.names("", "", 10), "a", "c")
		b.name("b")
		want(t, b.names("", "", 10), "a", "b", "c")
	})
}

func TestPagesOfNamesMissNothing(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		var all []string
		for i := range 100 {
			all = append(all, fmt.Sprintf("pool-%02d", i))
		}
		b.name("pool", "pooler")
		b.name(all...)
		var got []string
		for behind := ""; ; behind = got[len(got)-1] {
			page := b.names("pool-", behind, 7)
			if len(page) == 0 {
				break
			}
			got = append(got, page...)
			if len(got) > len(all) {
				t.Fatalf("the pages never end: %q", got)
			}
		}
		expect.Equal(t, "name_list page by page", got, all)
	})
}
