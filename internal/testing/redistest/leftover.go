package redistest

import (
	"time"

	"go.uber.org/goleak"
)

// leftoverLimit ends only the wait for a goroutine that never ends.
const leftoverLimit = 2 * time.Minute

// Leftover returns an error that lists the goroutines which outlive a package's tests, for its
// TestMain. None is passed over, but two of go-redis's get the time that they need after their
// client was closed: the probe of a pool whose dials failed sleeps a second before it looks
// (pool.tryDial), and the reading of a cluster's topology 200 ms (clusterStateHolder.LazyReload).
func Leftover() error {
	for limit := time.Now().Add(leftoverLimit); ; {
		err := goleak.Find()
		if err == nil || time.Now().After(limit) {
			return err
		}
	}
}
