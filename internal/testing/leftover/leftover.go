// Package leftover finds the goroutines that outlive a package's tests. It stands by itself, so
// that modules whose tests start a Redis need no goleak.
package leftover

import (
	"time"

	"go.uber.org/goleak"
)

// limit ends only the wait for a goroutine that never ends.
const limit = 2 * time.Minute

// Find returns an error that lists the goroutines which outlive a package's tests, for its
// TestMain. None is passed over, but two of go-redis's get the time that they need after their
// client was closed: the probe of a pool whose dials failed sleeps a second before it looks
// (pool.tryDial), and the reading of a cluster's topology 200 ms (clusterStateHolder.LazyReload).
func Find() error {
	for end := time.Now().Add(limit); ; {
		err := goleak.Find()
		if err == nil || time.Now().After(end) {
			return err
		}
	}
}
