//go:build check

package scripts_test

import "testing"

// What takes the embedded store too long for every run: as many repetitions as on a redis-server.
func TestLongRunsOnTheEmbeddedStore(t *testing.T) {
	t.Parallel()
	thousandTimes := func(test func(t *testing.T, b *box, grants int)) func(t *testing.T, b *box) {
		return func(t *testing.T, b *box) {
			t.Helper()
			test(t, b, thousand)
		}
	}
	for name, test := range map[string]func(t *testing.T, b *box){
		"fences of a token":              thousandTimes(fencesOfAToken),
		"fences of a pool":               thousandTimes(fencesOfAPool),
		"fences of a lock":               thousandTimes(fencesOfALock),
		"fences after one that is ahead": thousandTimes(fencesAfterThatAhead),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, open(t, "embedded"))
		})
	}
}
