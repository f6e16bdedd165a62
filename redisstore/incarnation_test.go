package redisstore_test

import (
	"errors"
	"testing"

	"github.com/coatcheck/coatcheck/internal/expect"
	"github.com/coatcheck/coatcheck/internal/health"
	"github.com/coatcheck/coatcheck/internal/redistest"
	"github.com/coatcheck/coatcheck/redisstore"
)

// lives asks for the incarnation until the store answers, as it does soon after a restart.
func lives(t *testing.T, store *redisstore.Store) health.Incarnation {
	t.Helper()
	var found health.Incarnation
	expect.Eventually(t, "the store tells its incarnation", func() bool {
		var err error
		found, err = health.IncarnationOf(t.Context(), store)
		return err == nil
	})
	return found
}

func TestServerThatComesBackEmptyIsANewIncarnation(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	store := open(t, server.URL(), nil)
	first := lives(t, store)
	server.RestartEmpty()
	second := lives(t, store)
	if first.Change != health.First || second.Change != health.First || second.ID == first.ID || second.Losses != 0 {
		t.Errorf("got %+v after %+v", second, first)
	}
	if again := lives(t, store); again.Change != health.Same || again.ID != second.ID {
		t.Errorf("got %+v after %+v", again, second)
	}
}

// A restart is a loss where Redis does not show that it kept what it had confirmed.
func TestRestartWithItsDataContinuesWhereTheDataIsOnDiskFirst(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		fsync    string
		restarts redisstore.Restarts
		change   health.Change
		losses   int64
	}{
		{"always", "", health.Continued, 0}, {"always", redisstore.WaitRestarts, health.Changed, 1}, {"always", redisstore.TrustRestarts, health.Same, 0},
		{"everysec", "", health.Changed, 1}, {"everysec", redisstore.TrustRestarts, health.Same, 0},
	} {
		t.Run(row.fsync+" "+string(row.restarts), func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t, "--appendonly", "yes", "--appendfsync", row.fsync)
			config := func(c *redisstore.Config) { c.Restarts = row.restarts }
			store := open(t, server.URL(), config)
			first := lives(t, store)
			server.Stop()
			server.Restart()
			second := lives(t, store)
			if second.Change != row.change || second.Losses != row.losses || second.ID == first.ID != (row.restarts == redisstore.TrustRestarts) {
				t.Errorf("after a restart with its data: got %+v after %+v, want change %s and %d losses", second, first, row.change, row.losses)
			}
			other := open(t, server.URL(), config)
			if again := lives(t, other); again.Change != health.Same || again.ID != second.ID || again.Losses != row.losses {
				t.Errorf("another store got %+v after %+v", again, second)
			}
		})
	}
}

func TestFlushedServerIsANewIncarnationOfTheSameName(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	store := open(t, server.URL(), nil)
	first := lives(t, store)
	do(t, server, "FLUSHALL")
	if second := lives(t, store); second.Change != health.First || second.ID != first.ID {
		t.Errorf("got %+v after %+v", second, first)
	}
}

func TestEmbeddedStoreKeepsItsIncarnationThroughACleanStop(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	reopen := func() *redisstore.Store { return open(t, "embedded:", func(c *redisstore.Config) { c.DataDir = dir }) }
	store := reopen()
	first := lives(t, store)
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	if second := lives(t, reopen()); second != (health.Incarnation{ID: first.ID, Change: health.Same}) {
		t.Errorf("got %+v after %+v", second, first)
	}
	if first.ID == lives(t, open(t, "embedded:", nil)).ID {
		t.Error("two embedded stores are the same incarnation")
	}
}

func TestDataDirectoryInUseIsRefused(t *testing.T) {
	t.Parallel()
	config := redisstore.Config{URL: "embedded:", DataDir: t.TempDir()}
	open(t, "embedded:", func(c *redisstore.Config) { *c = config })
	if _, err := redisstore.OpenConfig(t.Context(), config); err == nil {
		t.Error("a second store opened the same directory")
	}
}

func TestIncarnationOfAStoreThatIsAway(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	store := open(t, server.URL(), nil)
	server.Kill()
	found, err := health.IncarnationOf(t.Context(), store)
	refused(t, err)
	var full *redisstore.Error
	if found != (health.Incarnation{}) || !errors.As(err, &full) || full.Op != "incarnation" {
		t.Errorf("got %+v, %v", found, err)
	}
}
