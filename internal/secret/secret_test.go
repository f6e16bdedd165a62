package secret

import "testing"

func TestNewIsValidAndNeverTheSame(t *testing.T) {
	seen := map[string]bool{}
	for range 10_000 {
		text := New()
		if !Valid(text) || seen[text] || text[0] == '-' {
			t.Fatalf("%q: valid %v, seen before %v", text, Valid(text), seen[text])
		}
		seen[text] = true
	}
	for _, text := range []string{"", "short", New() + "x", New()[:21] + "/"} {
		if Valid(text) {
			t.Errorf("%q is valid", text)
		}
	}
}
