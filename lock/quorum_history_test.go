package lock

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"
)

// tenure is the time in which a holder believed to hold: from the grant to the last check at which
// it still held.
type tenure struct {
	fence     int64
	got, last time.Time
}

// diary is what many holders of one lock have recorded.
type diary struct {
	mu      sync.Mutex
	tenures []tenure
}

// faults lists where two believed to hold at once, and where a fence is not larger than all earlier
// ones: in the order of fences no tenure begins before the previous one has ended.
func (d *diary) faults() (found []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	slices.SortFunc(d.tenures, func(a, b tenure) int { return int(a.fence - b.fence) })
	for i := 1; i < len(d.tenures); i++ {
		before, after := d.tenures[i-1], d.tenures[i]
		if after.fence == before.fence || !after.got.After(before.last) {
			found = append(found, fmt.Sprintf("fence %d held until %v, fence %d from %v on", before.fence, before.last, after.fence, after.got))
		}
	}
	return found
}

func TestDiaryFindsWhatIsWrong(t *testing.T) {
	t.Parallel()
	start := time.Now()
	at := func(fence, got, last int) tenure {
		return tenure{int64(fence), start.Add(time.Duration(got)), start.Add(time.Duration(last))}
	}
	for _, row := range []struct {
		name    string
		tenures []tenure
		faults  int
	}{
		{"one after the other", []tenure{at(7, 3, 4), at(5, 1, 2), at(8, 5, 5)}, 0},
		{"two at once", []tenure{at(5, 1, 4), at(7, 3, 6)}, 1},
		{"one within another", []tenure{at(5, 1, 9), at(7, 3, 6)}, 1},
		{"a smaller fence", []tenure{at(7, 1, 2), at(5, 3, 4)}, 1},
		{"the same fence", []tenure{at(5, 1, 2), at(5, 3, 4)}, 1},
	} {
		if found := (&diary{tenures: row.tenures}).faults(); len(found) != row.faults {
			t.Errorf("%s: got the faults %q, want %d", row.name, found, row.faults)
		}
	}
}
