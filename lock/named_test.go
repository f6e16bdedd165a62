package lock

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/secret"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
)

// A request that has waited in vain hears of the holder what one hears that does not wait, wherever
// it waited: at Redis, at the gate within its process, or with a place that it keeps.
func TestRefusalAfterWaitingNamesTheHolder(t *testing.T) {
	storetest.Each(t, namesTheHolder)
}

func namesTheHolder(t *testing.T, store *redisstore.Store) {
	holding, waiting := open(t, store, Config{}), open(t, store, Config{})
	named := func(what string, err error, since time.Time) {
		t.Helper()
		held, ok := errors.AsType[*HeldError](err)
		if !ok {
			t.Fatalf("%s: got error %v, want a HeldError", what, err)
		}
		expect.Equal(t, what+": the holder", held.Owner, "web-1")
		expect.Equal(t, what+": since when, in ms", held.Since.UnixMilli(), since.UnixMilli())
		if held.Left <= 0 || held.Left > time.Hour {
			t.Errorf("%s: got %v left, want up to an hour", what, held.Left)
		}
	}
	for _, mode := range []Mode{ModeExclusive, ModeShared} {
		name := "held-" + string(mode)
		first := must(t, holding, name, Request{Owner: "web-1", TTL: time.Hour, Mode: mode})
		_, err := waiting.TryAcquire(t.Context(), name, Request{})
		named("TryAcquire", err, first.Since())
		_, err = waiting.Acquire(t.Context(), name, Request{Wait: time.Millisecond})
		named("Acquire", err, first.Since())
		place := Grant{Name: name, Token: secret.New()}
		_, err = waiting.Grant(t.Context(), name, Request{Wait: time.Millisecond, Token: place.Token, KeepPlace: true})
		named("Grant with a place that is kept", err, first.Since())
		expect.Error(t, "Release of the place", waiting.Release(t.Context(), place), nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		_, err = waiting.Acquire(ctx, name, Request{})
		cancel()
		named("Acquire with a context that ends", err, first.Since())
		expect.Error(t, "its error", err, context.DeadlineExceeded)

		before := waitLocal(t, waiting, name, Request{})
		queued(t, waiting, name, 1)
		_, err = waiting.Acquire(t.Context(), name, Request{Wait: time.Millisecond})
		named("Acquire at the gate", err, first.Since())
		release(t, first)
		release(t, before.granted(t))
	}
}
