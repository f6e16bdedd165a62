package names_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/internal/names"
)

// rule is what the documents say.
var rule = regexp.MustCompile(`^[A-Za-z0-9._:~@-]{1,200}$`)

func TestEveryByteIsJudgedByTheRule(t *testing.T) {
	for c := range 256 {
		for _, text := range []string{string([]byte{byte(c)}), "a" + string([]byte{byte(c)}), string([]byte{byte(c)}) + "a"} {
			if got, want := names.Valid(text), rule.MatchString(text); got != want {
				t.Errorf("Valid(%q): got %v, want %v", text, got, want)
			}
		}
	}
}

func FuzzValid(f *testing.F) {
	for _, text := range []string{"", "a", "orders:2026-11-22@eu~1_x.y", "ä", "a b", "a/b", "a\n", "\x00", strings.Repeat("a", 200), strings.Repeat("a", 201), ".", ".."} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if got, want := names.Valid(text), rule.MatchString(text); got != want {
			t.Errorf("Valid(%q): got %v, want %v", text, got, want)
		}
		if got, want := names.InPath(text), rule.MatchString(text) && text != "." && text != ".."; got != want {
			t.Errorf("InPath(%q): got %v, want %v", text, got, want)
		}
	})
}
