package workerlease_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/snowflake"
	"github.com/coatcheck/coatcheck/workerlease"
)

// ending is a layout whose timestamps, of seconds, end so long from now.
func ending(text string, left time.Duration) workerlease.Shape {
	layout := snowflake.MustLayout(text)
	epoch := time.Now().Add(left - layout.Unit<<layout.Timestamp).UTC().Truncate(time.Second)
	return workerlease.Shape{Layout: text, Epoch: epoch}
}

// A layout whose timestamps have ended can stamp nothing: no worker id of it is leased or renewed.
func TestNothingIsLeasedOrRenewedOnceTheLayoutHasEnded(t *testing.T) {
	storetest.Each(t, func(t *testing.T, store *redisstore.Store) {
		p := workerlease.New(store, workerlease.Config{NewPools: workerlease.NewPoolsTrust})
		shape := ending("20/10/13@s", 2*time.Second)
		expect.MustEqual(t, "error of Create", p.Create(t.Context(), "p", shape, 0), nil)
		lease, err := p.Acquire(t.Context(), "p", workerlease.Request{Shape: shape})
		expect.MustEqual(t, "error of Acquire before the end", err, nil)
		time.Sleep(time.Until(snowflake.MustLayout(shape.Layout).Lasts(shape.Epoch)) + 100*time.Millisecond)
		_, err = p.Acquire(t.Context(), "p", workerlease.Request{Shape: shape})
		expect.Error(t, "Acquire after the end", err, workerlease.ErrEnded)
		expect.Contains(t, "Acquire after the end", err.Error(), "coatcheck worker create --replace p --layout 28/10/13@s")
		_, err = p.Renew(t.Context(), lease, 0)
		expect.Error(t, "Renew after the end", err, workerlease.ErrEnded)
		expect.Equal(t, "error of Release after the end", p.Release(t.Context(), "p", lease.WorkerID, lease.Token, time.Time{}), nil)
	})
}

// A pool that is new begins with no layout that has ended, and a full one is not to be widened.
func TestNoPoolBeginsWithALayoutThatHasEnded(t *testing.T) {
	storetest.Each(t, func(t *testing.T, store *redisstore.Store) {
		p := workerlease.New(store, workerlease.Config{NewPools: workerlease.NewPoolsTrust})
		_, err := p.Acquire(t.Context(), "p", workerlease.Request{Shape: ending("30/20/13@s", -time.Second)})
		expect.Error(t, "Acquire", err, workerlease.ErrEnded)
		if strings.Contains(fmt.Sprint(err), "--layout") {
			t.Errorf("Acquire: got %v, want no wider layout, since all 63 bits are taken", err)
		}
	})
}

// Where a holder's layout ends it is done, and asks for no other worker id.
func TestHolderIsDoneWhenItsLayoutEnds(t *testing.T) {
	storetest.Each(t, func(t *testing.T, store *redisstore.Store) {
		p := workerlease.New(store, workerlease.Config{NewPools: workerlease.NewPoolsTrust})
		shape := ending("20/10/13@s", 3*time.Second)
		held, err := p.Hold(t.Context(), "p", workerlease.Request{Shape: shape, TTL: 3 * time.Second}, workerlease.HoldOptions{})
		expect.MustEqual(t, "error of Hold before the end", err, nil)
		t.Cleanup(func() { _ = held.Release(t.Context(), time.Time{}) })
		select {
		case <-held.Done():
		case <-time.After(patience):
			t.Fatal("the holder is not done, want it to end with the layout")
		}
		expect.Error(t, "Err", held.Err(), workerlease.ErrEnded)
	})
}
