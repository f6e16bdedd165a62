package pipeline

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/scripts"
)

// A process that only increments runs no script that would ask what scripts cannot see.
func TestIncrementHasWhatIsOldAskedForAgain(t *testing.T) {
	server := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	engine := New(Config{
		Timeout: time.Minute, Restarts: Auto,
		Classify: func(_ context.Context, _ string, err error, _, _ bool) error { return err },
	})
	engine.Serve(&redis.Options{Addr: server.Addr(), MaxRetries: -1})
	defer func() { expect.Error(t, "Close", engine.Close(), nil) }()
	reply, place, err := engine.RunAt(t.Context(), scripts.CounterOpen, []string{"k", "record", "marker"}, "", "", "", 1, "past", "", 0,
		"", "", "")
	expect.MustEqual(t, "error of counter_open", err, nil)
	known := engine.facts.of(place.node)
	expect.Equal(t, "what is confirmed is on disk", known.disk.Load(), true)
	expect.MustEqual(t, "error of CONFIG SET", server.Client().ConfigSet(t.Context(), "appendfsync", "everysec").Err(), nil)
	known.asked.Store(int64(time.Since(started) - time.Hour))
	_, err = engine.IncrBy(t.Context(), "k", 1, place, Marker{Key: "marker", Era: reply[3]})
	// it may have been asked while the addition was under way
	if err != nil && !errors.Is(err, ErrOtherIncarnation) {
		t.Errorf("IncrBy: %v", err)
	}
	expect.Eventually(t, "it is asked again, and what is confirmed is not on disk", func() bool { return !known.disk.Load() })
}

// A replica that has come and gone while a process was idle is listed, and has to confirm its next
// write.
func TestWriteAfterIdleHoursWaitsForAReplicaThatHasComeSince(t *testing.T) {
	server := redistest.Start(t)
	listed := Places{Own: server.Addr(), Others: map[string]string{}}
	engine := New(Config{
		Ack: AckAll, AckTimeout: 100 * time.Millisecond, Timeout: time.Minute, Restarts: Auto,
		Classify: func(_ context.Context, _ string, err error, _, _ bool) error { return err },
	})
	engine.Serve(&redis.Options{Addr: server.Addr(), MaxRetries: -1})
	engine.facts.set, engine.facts.key = withSentinel, "places"
	engine.facts.list = func(context.Context, *redis.Client, string) (Places, error) { return listed, nil }
	defer func() { expect.Error(t, "Close", engine.Close(), nil) }()
	open := func() (Place, error) {
		_, place, err := engine.RunAt(t.Context(), scripts.CounterOpen, []string{"k", "record", "marker"}, "", "", "", 1, "past", "", 0,
			"", "", "")
		return place, err
	}
	place, err := open()
	expect.MustEqual(t, "error of a write without replicas", err, nil)
	known := engine.facts.of(place.node)
	listed.Others["10.0.0.1:6379"] = ""
	known.asked.Store(int64(time.Since(started) - time.Hour))
	_, err = open()
	var short *ShortfallError
	if !errors.As(err, &short) || short.Want != 1 {
		t.Errorf("a write after an hour: got %v, want %v", err, &ShortfallError{Want: 1})
	}
}
