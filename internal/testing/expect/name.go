package expect

import "testing"

// SameName fails the test unless a name, or a part of what makes one, is as it was when the version
// of names, names.Version, was last changed.
func SameName(t testing.TB, version int, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %s, want %s. Two versions that name one operation in two ways run it twice. Keep the name, or look up both; "+
			"else make names.Version %d, and have the CHANGELOG say that this release must not run mixed with those before it",
			what, got, want, version+1)
	}
}
