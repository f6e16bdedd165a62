package secret

import "testing"

func TestNewIsValidAndNeverTheSame(t *testing.T) {
	seen := map[string]bool{}
	for range 10_000 {
		text := New()
		if !Valid(text) || seen[text] || text[0] == '-' {
			t.Fatalf("New: got %q, valid %v, seen before %v, want a valid new one that does not begin with a dash", text, Valid(text), seen[text])
		}
		seen[text] = true
	}
	for _, text := range []string{"", "short", New() + "x", New()[:21] + "/"} {
		if Valid(text) {
			t.Errorf("Valid(%q): got true, want false", text)
		}
	}
}
