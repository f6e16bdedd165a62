package segment

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/redisstore"
)

// tags makes a source with tags of the names tag-0, tag-1 and so on, each from 1 by 10.
func tags(count int) *shelf {
	source := newShelf("tag-0", 1, 10)
	for i := range count {
		source.add(fmt.Sprintf("tag-%d", i), 1)
	}
	return source
}

// uses draws an id of each of the tags from one number to below another, and checks that they go on
// where they were.
func uses(t *testing.T, s *Segments, from, to int, want int64) {
	t.Helper()
	for i := from; i < to; i++ {
		if id, err := s.Next(t.Context(), fmt.Sprintf("tag-%d", i)); err != nil || id != want {
			t.Fatalf("tag %d: %d, %v, want %d", i, id, err, want)
		}
	}
}

// wantTags checks how many tags there are, and how many were dropped.
func wantTags(t *testing.T, s *Segments, tags, letGo int64) {
	t.Helper()
	expect.Equal(t, "tags", int64(s.Totals().Tags), tags)
	expect.Equal(t, "tags that were dropped", s.Totals().LetGo, letGo)
}

func TestUnusedTagIsDropped(t *testing.T) {
	bubble(t, func(t *testing.T) {
		log := &bytes.Buffer{}
		s := open(t, tags(2), Config{Idle: 10 * time.Hour, Logger: slog.New(slog.NewTextHandler(log, nil))})
		quiet := handle(t, s, "tag-0")
		uses(t, s, 0, 2, 1)
		for want := int64(2); want < 9; want++ { // as soon as one uses it once in a while it stays
			time.Sleep(9 * time.Hour)
			uses(t, s, 1, 2, want)
			if want == 2 {
				uses(t, s, 0, 1, want)
			}
		}
		synctest.Wait()
		expect.Equal(t, "the tag that is left", only(t, s).Tag, "tag-1")
		wantTags(t, s, 1, 1)
		// What was left of 1 to 10, and the 10 that were ready, are lost. The handle is as good as
		// ever.
		if text := log.String(); strings.Count(text, "let an idle tag go") != 1 || !strings.Contains(text, "tag=tag-0 unused=") || !strings.Contains(text, "ids_lost=18") {
			t.Errorf("the log says %s", text)
		}
		expect.Equal(t, "the next id of the handle of the tag that was dropped", next(t, quiet), 21)
		uses(t, s, 0, 1, 22)
		if id := next(t, quiet); id != 23 || len(s.Stats()) != 2 {
			t.Errorf("the handle gives %d", id)
		}
		time.Sleep(100 * time.Hour)
		synctest.Wait()
		if got := s.Stats(); len(got) != 0 || s.sweep != nil {
			t.Errorf("left: %+v", got)
		}
	})
}

// A handle and the name, with both used by many while the tag is dropped all the time: no id twice,
// and none out of order for one caller.
func TestHandlesOutliveTheirTags(t *testing.T) {
	source := newShelf("orders", 1, 50)
	s := open(t, source, Config{})
	old := []*Tag{handle(t, s, "orders")}
	var mu sync.Mutex
	seen := map[int64]bool{}
	note := func(last, id int64) {
		mu.Lock()
		defer mu.Unlock()
		if seen[id] || id <= last {
			t.Errorf("%d came twice, or after %d", id, last)
		}
		seen[id] = true
	}
	var all sync.WaitGroup
	var done atomic.Bool
	for i := range 4 {
		all.Go(func() {
			last := int64(0)
			for n := range 3000 {
				tag := old[0]
				if (n+i)%3 == 0 {
					tag = handle(t, s, "orders")
				}
				id, err := tag.Next(t.Context())
				if err != nil {
					t.Errorf("Next: got error %v, want none", err)
					return
				}
				note(last, id)
				last = id
			}
		})
	}
	go func() { all.Wait(); done.Store(true) }()
	for !done.Load() {
		s.mu.Lock()
		if c := s.chains["orders"]; c != nil {
			now := time.Now().Add(time.Hour)
			c.lastUse(time.Now())
			s.letGoLocked(c, now, 0)
		}
		s.mu.Unlock()
		runtime.Gosched()
	}
	if len(seen) != 12_000 || s.Totals().LetGo == 0 {
		t.Errorf("%d ids, dropped %d times", len(seen), s.Totals().LetGo)
	}
}

// With as many tags in use as may be another one is refused, and none of them loses an id. When one
// was unused for long enough it makes room: the one unused for longest.
func TestTagsAreBounded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		source := tags(30)
		s := open(t, source, Config{MaxTags: 20})
		uses(t, s, 0, 20, 1)
		for range 3 {
			_, err := s.Next(t.Context(), "tag-20")
			wantIs(t, err, ErrTooManyTags, redisstore.ErrRefused)
			expect.Equal(t, "when one can make room", redisstore.RetryAfter(err), DefaultPeriod)
		}
		expect.Equal(t, "fetches for a tag that has no room", len(source.all("tag-20")), 0)
		time.Sleep(DefaultPeriod - time.Second)
		uses(t, s, 1, 20, 2)
		_, err := s.Next(t.Context(), "tag-20")
		wantIs(t, err, ErrTooManyTags)
		expect.Equal(t, "when one can make room, in the end", redisstore.RetryAfter(err), time.Second)
		time.Sleep(time.Second)
		uses(t, s, 20, 21, 1) // tag 0 goes
		_, err = s.Next(t.Context(), "tag-21")
		wantIs(t, err, ErrTooManyTags)
		uses(t, s, 1, 20, 3)
		wantTags(t, s, 20, 1)
		time.Sleep(DefaultPeriod * 5 / 4) // a draw is noticed a quarter later at most
		uses(t, s, 20, 21, 2)
		uses(t, s, 10, 20, 4)
		uses(t, s, 21, 30, 1) // nine of 1 to 9 go
		uses(t, s, 10, 20, 5)
		_, err = s.Next(t.Context(), "tag-0")
		wantIs(t, err, ErrTooManyTags)
		wantTags(t, s, 20, 10)
		if len(s.seen) > 20 {
			t.Errorf("%d tags that were seen are kept, want 20 at most", len(s.seen))
		}
	})
}

// Names that the source does not have can neither evict a tag nor keep a new one from coming in, as
// long as fewer than MaxTags are being looked up.
func TestMadeUpNamesEvictNoTag(t *testing.T) {
	bubble(t, func(t *testing.T) {
		source, gate := tags(20), newGate()
		s := open(t, source, Config{MaxTags: 20})
		uses(t, s, 0, 19, 1)
		time.Sleep(time.Hour) // all may make room
		source.setBefore(gate.wait)
		failed := make(chan error)
		for i := range 19 {
			go func() {
				_, err := s.Next(t.Context(), fmt.Sprintf("made-up-%d", i))
				failed <- err
			}()
		}
		synctest.Wait()
		go func() {
			_, err := s.Next(t.Context(), "tag-19")
			failed <- err
		}()
		synctest.Wait()
		_, err := s.Next(t.Context(), "made-up-19")
		wantIs(t, err, ErrTooManyTags)
		expect.Equal(t, "tags while names are looked up", len(s.Stats()), 39)
		gate.open()
		unknown := 0
		for range 20 {
			if err := <-failed; errors.Is(err, ErrNotFound) {
				unknown++
			} else if err != nil {
				t.Errorf("Next of a made-up name: got error %v, want %v", err, ErrNotFound)
			}
		}
		expect.Equal(t, "names that are unknown", unknown, 19)
		uses(t, s, 0, 19, 2)
		wantTags(t, s, 20, 0)
	})
}

// Where one more tag has room and two come at once, one of them is refused, and evicts no tag that
// is in use.
func TestLastRoomIsForOne(t *testing.T) {
	bubble(t, func(t *testing.T) {
		source, gate := tags(22), newGate()
		s := open(t, source, Config{MaxTags: 20})
		uses(t, s, 0, 19, 1)
		// unused for a while, and that was observed, but not for long enough
		time.Sleep(DefaultPeriod / 3)
		source.setBefore(gate.wait)
		results := make(chan error)
		for _, name := range []string{"tag-19", "tag-20", "tag-21"} {
			go func() {
				_, err := s.Next(t.Context(), name)
				results <- err
			}()
		}
		synctest.Wait()
		gate.open()
		refusals := 0
		for range 3 {
			if err := <-results; err != nil {
				wantIs(t, err, ErrTooManyTags)
				refusals++
			}
		}
		synctest.Wait()
		if got := s.Totals(); refusals != 2 || got.Tags != 20 || got.LetGo != 0 || len(s.Stats()) != 20 {
			t.Errorf("%d refusals, %+v", refusals, got)
		}
		uses(t, s, 0, 19, 2)
	})
}

// A tag whose fetch is under way is in use, however long ago the last id of it was drawn.
func TestTagIsNotLetGoWhileItIsFetched(t *testing.T) {
	bubble(t, func(t *testing.T) {
		gate := newGate()
		_, s, tag := drained(t, Config{Idle: time.Second, Timeout: 10 * time.Minute}, gate.wait)
		one := draw(t.Context(), tag)
		time.Sleep(9 * time.Minute)
		gate.open()
		got := <-one
		expect.Error(t, "Next", got.err, nil)
		expect.Equal(t, "Next", got.id, 21)
		wantTags(t, s, 1, 0)
	})
}

func TestWhatWasSeenOutlivesTheTag(t *testing.T) {
	bubble(t, func(t *testing.T) {
		source := newShelf("orders", 1, 10)
		s := open(t, source, Config{Idle: time.Hour})
		nextN(t, handle(t, s, "orders"), 10)
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		expect.MustEqual(t, "Stats after a day without a draw", len(s.Stats()), 0)
		source.add("orders", 1)
		for range 2 { // 1 to 20 were seen
			_, err := s.Next(t.Context(), "orders")
			wantIs(t, err, ErrWentBack)
			synctest.Wait()
		}
		if id, err := s.Next(t.Context(), "orders"); err != nil || id != 21 {
			t.Errorf("got %d, %v", id, err)
		}
	})
}

// Of tags that were dropped no more is kept than of those in use.
func TestWhatIsKeptOfOldTagsIsBounded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, tags(500), Config{MaxTags: 7, Idle: time.Second})
		for i := range 500 {
			uses(t, s, i, i+1, 1)
			time.Sleep(2 * time.Second)
		}
		synctest.Wait()
		if len(s.seen) > 7 || len(s.chains) > 1 {
			t.Errorf("%d were seen, %d are there", len(s.seen), len(s.chains))
		}
	})
}
