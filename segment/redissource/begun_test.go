package redissource_test

import (
	"errors"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/counter"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/segment"
	"github.com/coatcheck/coatcheck/segment/redissource"
)

// process is ids with a store of their own, as another process has them.
func process(t *testing.T, url string) (ids *segment.Segments, counters *counter.Counters) {
	t.Helper()
	store := storetest.Open(t, redisstore.Config{URL: url})
	source := redissource.New(store, redissource.Config{Step: counter.MaxBy, Counters: counter.Config{HoldOff: 2 * time.Second}})
	ids = segment.New(source, segment.Config{MaxStep: counter.MaxBy})
	t.Cleanup(func() {
		ids.Close()
		_ = source.Close()
	})
	return ids, redissource.CountersOf(source)
}

func draw(t *testing.T, ids *segment.Segments, given map[int64]bool, who string) error {
	t.Helper()
	id, err := ids.Next(t.Context(), "t")
	if err == nil {
		if given[id] {
			t.Errorf("%s: got the id %d again", who, id)
		}
		given[id] = true
	}
	return err
}

// A process that starts right after Redis has lost everything takes it for new, and gets ids that
// another process has handed out. When that one finds the loss, the rest of them is dropped. The
// other process goes on with what it had fetched.
func TestProcessThatTookALostRedisForNewGivesUpWhatItHasFetched(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(*redistest.Server){
		"flushed":       func(s *redistest.Server) { expect.NoError(t, "FLUSHALL", s.Client().FlushAll(t.Context()).Err()) },
		"started empty": (*redistest.Server).RestartEmpty,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			given := map[int64]bool{}
			before, counters := process(t, server.URL())
			for range 10 {
				expect.NoError(t, "Next", draw(t, before, given, "the process of before"))
			}
			expect.Eventually(t, "its ids are proven", func() bool { return counters.Unproven("t") == nil })
			lose(server)

			after, _ := process(t, server.URL())
			// it has ids first, unless the process of before finds the loss while this one starts
			expect.Eventually(t, "the process that is new has no more ids", func() bool {
				_, err := after.Next(t.Context(), "t")
				return errors.Is(err, counter.ErrHoldOff)
			})
			expect.NoError(t, "an id of the process of before, while it holds off", draw(t, before, given, "the process of before"))
			expect.Eventually(t, "the process that is new has ids again", func() bool {
				return draw(t, after, given, "the process that is new") == nil
			})
			for range 10 {
				expect.NoError(t, "Next", draw(t, after, given, "the process that is new"))
				expect.NoError(t, "Next", draw(t, before, given, "the process of before"))
			}
		})
	}
}
