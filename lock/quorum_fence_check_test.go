//go:build check

package lock

import "testing"

// It draws the hundred histories of package rapid, and not the few of rapid_test.go.
func TestFencesOfAQuorumRiseInManyHistories(t *testing.T) {
	t.Parallel()
	fencesOfAQuorumRise(t)
}
