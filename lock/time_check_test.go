//go:build check

package lock

import "testing"

func TestManyShortLivedNamesLeaveNothingBehind(t *testing.T) { leavesNothing(t, 2000) }
