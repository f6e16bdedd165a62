//go:build steps

package notifier_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/notifier"
	"github.com/coatcheck/coatcheck/internal/onstore"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/internal/testing/walk"
)

// waiting is a waiter that registers, subscribes, asks Redis and then sleeps, while another process
// writes and then publishes; another one may close the notifier.
func waiting(closes bool) func(t *testing.T) walk.Play {
	return func(t *testing.T) walk.Play {
		t.Helper()
		store, client := storetest.Stepped(t)
		channel := onstore.Key(store, "test", "channel")
		n := notifier.New(store, channel, slog.New(slog.DiscardHandler), func(message string) (string, string) { return "k", message })
		ctx := context.Background()
		missed := false
		waiter := func() {
			notified, forget := n.Expect("k")
			defer forget()
			n.Listen(ctx)
			listens := n.Channel() != ""
			if client.Exists(ctx, "done").Val() == 1 {
				return
			}
			select {
			case <-notified:
			case <-time.After(time.Minute):
				missed = listens && !closes
			}
		}
		writer := func() {
			client.Set(ctx, "done", "1", 0)
			client.Publish(ctx, channel, "done")
		}
		tasks := []walk.Task{{Name: "waiter", Do: waiter}, {Name: "writer", Do: writer}}
		if closes {
			tasks = append(tasks, walk.Task{Name: "closer", Do: n.Close})
		}
		return walk.Play{Tasks: tasks, Close: n.Close, Check: func() error {
			if missed {
				return errors.New("a waiter that listened slept though what it waits for had come")
			}
			return nil
		}}
	}
}

func TestWalkEveryOrderOfAWaiter(t *testing.T) {
	walk.Every(t, walk.Scene{Begin: waiting(false)})
	walk.Every(t, walk.Scene{Preemptions: 2, Begin: waiting(true)})
}

func TestWalkRandomOrdersOfAWaiter(t *testing.T) {
	walk.Rounds(t, walk.Scene{Slow: true, Begin: waiting(false)})
	walk.Rounds(t, walk.Scene{Slow: true, Begin: waiting(true)})
}
