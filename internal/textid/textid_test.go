package textid

import (
	"crypto/rand"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// Those of many goroutines differ, and each sees its own rise.
func TestULIDsRise(t *testing.T) {
	var making sync.WaitGroup
	var mu sync.Mutex
	all := map[string]bool{}
	for range 8 {
		making.Go(func() {
			var own []string
			for range 5000 {
				id, err := NewULID()
				if err != nil {
					t.Errorf("NewULID: got error %v, want none", err)
				}
				own = append(own, id)
			}
			if !slices.IsSorted(own) {
				t.Error("the ULIDs of one goroutine do not rise")
			}
			mu.Lock()
			defer mu.Unlock()
			for _, id := range own {
				all[id] = true
			}
		})
	}
	making.Wait()
	expect.Equal(t, "different ULIDs", len(all), 8*5000)
}

func TestULIDsRiseWhereTheClockGoesBack(t *testing.T) {
	s := &source{entropy: rand.Reader}
	last := ""
	for _, ms := range []uint64{1000, 1000, 5, 999, 1001, 0} {
		id, err := s.next(ms)
		if err != nil || id <= last {
			t.Errorf("at %d ms: got %s, %v, want one after %s", ms, id, err, last)
		}
		last = id
	}
	// a step may carry over into the time: the next millisecond's first one is still larger
	s.last, _ = ulid.New(2000, strings.NewReader(strings.Repeat("\xff", 10)))
	before := s.last.String()
	for _, ms := range []uint64{2000, 2001, 2002} {
		id, err := s.next(ms)
		if err != nil || id <= before {
			t.Errorf("at %d ms, after the last one of 2000 ms: got %s, %v, want one after %s", ms, id, err, before)
		}
		before = id
	}
	s.last, _ = ulid.New(ulid.MaxTime(), strings.NewReader(strings.Repeat("\xff", 10)))
	if id, err := s.next(1); err == nil {
		t.Errorf("after the largest there is: got %s, want an error", id)
	}
}

func TestWhatWasMadeIsTakenApart(t *testing.T) {
	before := time.Now().Truncate(time.Millisecond)
	for prefix, newID := range map[string]func() (string, error){
		"ulid": NewULID, "order": func() (string, error) { return NewTypeID("order") }, "a_b": func() (string, error) { return NewTypeID("a_b") }, "": func() (string, error) { return NewTypeID("") },
	} {
		id, err := newID()
		if err != nil {
			t.Fatalf("making one, prefix %q: got error %v, want none", prefix, err)
		}
		format := TypeID
		if prefix == "ulid" {
			format, prefix = ULID, ""
		}
		parts, err := Decode(format, id)
		if err != nil || parts.ID != id || parts.Prefix != prefix || parts.Time.Before(before) || parts.Time.After(time.Now().Add(time.Second)) {
			t.Errorf("Decode of %s: got %+v, %v, want prefix %q and the present time", id, parts, err, prefix)
		}
	}
}

// The examples of the two specifications.
func TestKnownIDs(t *testing.T) {
	for _, row := range []struct {
		format string
		want   Parts
	}{
		{ULID, Parts{"01ARZ3NDEKTSV4RRFFQ69G5FAV", "", "01563e3a-b5d3-d676-4c61-efb99302bd5b", time.UnixMilli(1469922850259).UTC()}},
		{ULID, Parts{"7ZZZZZZZZZZZZZZZZZZZZZZZZZ", "", "ffffffff-ffff-ffff-ffff-ffffffffffff", time.UnixMilli(1<<48 - 1).UTC()}},
		{TypeID, Parts{"prefix_01h455vb4pex5vsknk084sn02q", "prefix", "01890a5d-ac96-774b-bcce-b302099a8057", time.UnixMilli(1688096058518).UTC()}},
		{TypeID, Parts{"pre_fix_00000000000000000000000000", "pre_fix", "00000000-0000-0000-0000-000000000000", time.Time{}}},
		{TypeID, Parts{"7zzzzzzzzzzzzzzzzzzzzzzzzz", "", "ffffffff-ffff-ffff-ffff-ffffffffffff", time.Time{}}},
	} {
		got, err := Decode(row.format, row.want.ID)
		if err != nil || got != row.want {
			t.Errorf("Decode of %s: got %+v, %v, want %+v", row.want.ID, got, err, row.want)
		}
	}
	small, err := Decode(ULID, "01arz3ndektsv4rrffq69g5fav")
	expect.Equal(t, "a ULID in small letters", small.ID, "01ARZ3NDEKTSV4RRFFQ69G5FAV")
	expect.Equal(t, "its error", err, nil)
}

func TestWhatIsNoneIsRefused(t *testing.T) {
	for _, id := range []string{"", "01ARZ3NDEKTSV4RRFFQ69G5FA", "01ARZ3NDEKTSV4RRFFQ69G5FAVV", "81ARZ3NDEKTSV4RRFFQ69G5FAV", "01ARZ3NDEKTSV4RRFFQ69G5FAU", "01ARZ3NDEKTSV4RRFFQ69G5F\x00V"} {
		if got, err := Decode(ULID, id); err == nil {
			t.Errorf("Decode of the ULID %q: got %+v, want an error", id, got)
		}
	}
	for _, id := range []string{
		"", "prefix_", "_01h455vb4pex5vsknk084sn02q", "Prefix_01h455vb4pex5vsknk084sn02q", "prefix_01H455VB4PEX5VSKNK084SN02Q", "prefix_81h455vb4pex5vsknk084sn02q", "prefix_01h455vb4pex5vsknk084sn02",
		"pre1_01h455vb4pex5vsknk084sn02q", "_prefix_01h455vb4pex5vsknk084sn02q", "prefix__01h455vb4pex5vsknk084sn02q", strings.Repeat("a", 64) + "_01h455vb4pex5vsknk084sn02q",
	} {
		if got, err := Decode(TypeID, id); err == nil {
			t.Errorf("Decode of the TypeID %q: got %+v, want an error", id, got)
		}
	}
	for _, prefix := range []string{"Order", "order1", "_order", "order_", "or-der", " ", "ä", strings.Repeat("a", 64)} {
		if CheckPrefix(prefix) == nil {
			t.Errorf("CheckPrefix of %q: got no error, want one", prefix)
		}
	}
	for _, prefix := range []string{"", "a", "order", "sales_order", strings.Repeat("a", 63)} {
		expect.Equal(t, "CheckPrefix of "+prefix, CheckPrefix(prefix), nil)
	}
}
