package stamper_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/server/internal/stamper"
	"github.com/coatcheck/coatcheck/snowflake"
)

type ownerKey struct{}

// as is a context of an owner's call.
func as(t *testing.T, owner string) context.Context {
	t.Helper()
	return context.WithValue(t.Context(), ownerKey{}, owner)
}

// owned is a Config under which each call says whose it is.
func owned(config stamper.Config) stamper.Config {
	config.Owner = func(ctx context.Context) string {
		owner, _ := ctx.Value(ownerKey{}).(string)
		return owner
	}
	return config
}

// open opens as many pools of an owner's as it can, and returns how many.
func (b bench) open(t *testing.T, owner string, upTo int) (n int) {
	t.Helper()
	for n < upTo {
		_, err := b.Stamp(as(t, owner), fmt.Sprint(owner, ":", n), make([]snowflake.ID, 1))
		if errors.Is(err, stamper.ErrTooMany) {
			return n
		}
		expect.NoError(t, fmt.Sprintf("pool %d of %s", n, owner), err)
		n++
	}
	return n
}

func TestOneOwnerDoesNotKeepAllPlacesFromOthers(t *testing.T) {
	bubble(t, owned(stamper.Config{Default: "main", Max: 13}), trust, func(t *testing.T, b bench) {
		expect.Equal(t, "pools of a, alone", b.open(t, "a", 20), 12)
		expect.Equal(t, "pools of b, beside a", b.open(t, "b", 20), 6)
		expect.Equal(t, "pools of c, beside a and b", b.open(t, "c", 20), 4)
		open := map[string]int{}
		for _, status := range b.Status() {
			owner, _, _ := strings.Cut(status.Pool, ":")
			open[owner]++
		}
		expect.Equal(t, "pools that are open, by owner", open, map[string]int{"a": 4, "b": 4, "c": 4, "main": 1})
		expect.Error(t, "another of a", stampAs(t, b, "a", "a:x"), stamper.ErrTooMany)
		time.Sleep(30 * time.Second)
		for i := range 4 {
			if err := stampAs(t, b, "c", fmt.Sprint("c:", i)); err != nil {
				t.Errorf("pool c:%d, which is open: %v", i, err)
			}
		}
		time.Sleep(31 * time.Second) // now those of a and b have rested for long enough
		expect.Error(t, "another of a, a minute later", stampAs(t, b, "a", "a:x"), nil)
		expect.Equal(t, "pools that are open", len(b.Status()), 13)
	})
}

func stampAs(t *testing.T, b bench, owner, pool string) error {
	t.Helper()
	_, err := b.Stamp(as(t, owner), pool, make([]snowflake.ID, 1))
	return err
}

// A call that stamps at that moment in the pool that is given up hears it, and does not wait in
// vain.
func TestPoolInUseIsGivenUpForAnOwnerWithFewer(t *testing.T) {
	bubble(t, owned(stamper.Config{Max: 2}), trust, func(t *testing.T, b bench) {
		var stamping sync.WaitGroup
		for i := range 2 {
			pool := fmt.Sprint("slow", i)
			b.create(t, pool, "41/10/0") // an id a millisecond
			stamping.Go(func() {
				_, err := b.Stamp(as(t, "a"), pool, make([]snowflake.ID, 60_000))
				if err != nil && !errors.Is(err, stamper.ErrUnavailable) {
					t.Errorf("stamping in %s: got error %v, want none or Unavailable", pool, err)
				}
			})
		}
		synctest.Wait()
		expect.Error(t, "a pool of b", stampAs(t, b, "b", "b"), nil)
		expect.Equal(t, "pools that are open", len(b.Status()), 2)
		stamping.Wait()
	})
}
