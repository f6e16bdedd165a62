package names

import (
	"regexp"
	"strings"
	"testing"
)

func TestDigestIsShortAndTellsNothing(t *testing.T) {
	form := regexp.MustCompile(`^[A-Za-z0-9_-]{32}$`)
	for _, parts := range [][]string{nil, {""}, {"secret"}, {strings.Repeat("secret", 1000)}, {"\x00{}\r\n", "é"}} {
		digest := Digest(parts...)
		if !form.MatchString(digest) || strings.Contains(digest, "secret") {
			t.Errorf("the digest of %q is %q", parts, digest)
		}
		if Digest(parts...) != digest {
			t.Errorf("the digest of %q differs from itself", parts)
		}
	}
}

// Parts must not flow into each other: that would answer one customer with another's record.
func TestDigestsOfDifferentPartsDiffer(t *testing.T) {
	seen := map[string][]string{}
	pieces := []string{"", "a", "b", "ab", "1:a", "1:a,", ",1:a", "0:,", "1", ":", ",", "a,1:b", "a,b", "\x00"}
	note := func(parts ...string) {
		digest := Digest(parts...)
		if other, found := seen[digest]; found {
			t.Errorf("%q and %q have the same digest", parts, other)
		}
		seen[digest] = parts
	}
	note()
	for _, a := range pieces {
		note(a)
		for _, b := range pieces {
			note(a, b)
			for _, c := range pieces {
				note(a, b, c)
			}
		}
	}
}
