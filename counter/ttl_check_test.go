//go:build check

package counter_test

import "testing"

func TestManyCallsUnderWayAsTheCounterExpires(t *testing.T) { callsAsTheCounterExpires(t, 20) }
