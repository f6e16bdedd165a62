//go:build check

package lock

import "testing"

func TestManyShortLivedNamesLeaveNothingBehind(t *testing.T) { leavesNothingBehind(t, 2000) }
