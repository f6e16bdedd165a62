package redisstore_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/coatcheck/coatcheck/internal/health"
	"github.com/coatcheck/coatcheck/internal/testing/engines"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
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

// A server that confirms only what is on disk comes back with all of it; any other may not have it.
func TestServerThatComesBackWithItsData(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		fsync    string
		restarts redisstore.Restarts
		want     health.Change
		losses   int64
	}{
		{"always", redisstore.RestartsAuto, health.Continued, 0},
		{"always", redisstore.RestartsWait, health.Changed, 1},
		{"everysec", redisstore.RestartsAuto, health.Changed, 1},
	} {
		t.Run(fmt.Sprint(row.fsync, " ", row.restarts), func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t, "--appendonly", "yes", "--appendfsync", row.fsync)
			store := open(t, server.URL(), func(c *redisstore.Config) { c.Restarts = row.restarts })
			first := lives(t, store)
			server.Stop() // in order, so that the file is whole under either policy
			server.Restart()
			second := lives(t, store)
			if second.Change != row.want || second.Losses != row.losses || second.ID == first.ID {
				t.Errorf("got %+v after %+v, want %s and %d losses", second, first, row.want, row.losses)
			}
			other := open(t, server.URL(), func(c *redisstore.Config) { c.Restarts = row.restarts })
			if again := lives(t, other); again != (health.Incarnation{ID: second.ID, Losses: row.losses, Change: health.Same}) {
				t.Errorf("another store got %+v after %+v", again, second)
			}
		})
	}
}

// A server without a name for its history is told as such, and not as one that stays the same.
func TestServerThatShowsNoIncarnation(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for fact, engine := range map[string]engines.Engine{
		"INFO replication shows no master_replid": {Info: map[string]string{"master_replid": ""}},
		"master_replid is " + engines.Zeros:       {Info: map[string]string{"master_replid": engines.Zeros}},
		"master_replid is not 40 hex digits long": {Info: map[string]string{"master_replid": "not 40 hex digits long"}},
	} {
		proxy := engines.Start(t, server.Addr(), engine)
		store := open(t, proxy.URL(), nil)
		if found := lives(t, store); found != (health.Incarnation{Change: health.None, Fact: fact}) {
			t.Errorf("got %+v, want none, for %q", found, fact)
		}
		_, err := tryFind(t, store, "k")
		if !errors.Is(err, redisstore.ErrUnsuitable) || !errors.Is(err, redisstore.ErrRefused) {
			t.Errorf("a counter where %s: got %v, want %v", fact, err, redisstore.ErrUnsuitable)
		}
		trusting := open(t, proxy.URL(), func(c *redisstore.Config) { c.Restarts, c.Prefix = redisstore.RestartsTrust, "trust:" })
		mustIncr(t, trusting, fact, 1, find(t, trusting, fact), 1)
	}
}

// No replica of KeyDB can confirm, and an active one is one of two masters.
func TestKeyDBIsRefusedWhereItCannotWork(t *testing.T) {
	t.Parallel()
	plain := engines.Start(t, redistest.Start(t).Addr(), engines.KeyDB).URL()
	active := engines.Start(t, redistest.Start(t).Addr(), engines.Engine{Info: map[string]string{"role": "active-replica"}}).URL()
	for _, row := range []struct {
		url     string
		ack     int
		refused bool
	}{{plain, 0, false}, {plain, 1, true}, {plain, redisstore.AckAll, true}, {active, 0, true}} {
		_, err := tryFind(t, open(t, row.url, func(c *redisstore.Config) { c.Ack = row.ack }), "k")
		if is := errors.Is(err, redisstore.ErrUnsuitable); is != row.refused || err != nil && !is {
			t.Errorf("a counter with --ack %d, on an active replica %v: got %v, want it refused %v", row.ack, row.url == active, err, row.refused)
		}
	}
}

func TestEmbeddedStoresAreIncarnationsOfTheirOwn(t *testing.T) {
	t.Parallel()
	first, second := lives(t, open(t, "embedded:", nil)), lives(t, open(t, "embedded:", nil))
	if first.ID == second.ID {
		t.Errorf("got %+v twice, want two incarnations", first)
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
