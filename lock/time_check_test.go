//go:build check

package lock

import "testing"

func TestManyShortLivedNamesLeaveNothing(t *testing.T) { leavesNothing(t, 2000) }
