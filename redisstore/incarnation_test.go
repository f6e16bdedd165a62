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
	if first.Change != health.First || second.Change != health.First || second.ID == first.ID || second.Previous != "" {
		t.Errorf("got %+v after %+v", second, first)
	}
	if again := lives(t, store); again.Change != health.Same || again.ID != second.ID {
		t.Errorf("got %+v after %+v", again, second)
	}
}

func TestServerThatComesBackWithItsDataIsAChangedIncarnation(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	store := open(t, server.URL(), nil)
	first := lives(t, store)
	server.Kill()
	server.Restart()
	second := lives(t, store)
	if second.Change != health.Changed || second.Previous != first.ID || second.ID == first.ID {
		t.Errorf("got %+v after %+v", second, first)
	}
	other := open(t, server.URL(), nil)
	if again := lives(t, other); again.Change != health.Same || again.ID != second.ID {
		t.Errorf("another store got %+v after %+v", again, second)
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
