package redisstore_test

import (
	"context"
	"testing"

	"github.com/coatcheck/coatcheck/internal/onstore"
	"github.com/coatcheck/coatcheck/internal/pipeline"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
)

var publish = script("publish", "return {'ok', redis.call('PUBLISH', ARGV[1], ARGV[2])}", false)

func published(t *testing.T, store *redisstore.Store, channel, message string) {
	t.Helper()
	if _, err := onstore.Run(t.Context(), store, publish, []string{onstore.Key(store, "test", message)}, channel, message); err != nil {
		t.Fatalf("Run: got error %v, want none", err)
	}
}

// What any script on any server of the store publishes arrives, in the order of one publisher, from
// the moment that Subscribe has returned.
func TestInboxReceivesWhatIsPublished(t *testing.T) {
	t.Parallel()
	storetest.Each(t, func(t *testing.T, store *redisstore.Store) {
		channel := onstore.Key(store, "test", "channel")
		inbox, err := pipeline.Of(store).Subscribe(t.Context(), channel)
		expect.NoError(t, "Subscribe", err)
		// their keys lie on several servers of a cluster
		messages := []string{"a", "b", "c", "d", "e"}
		for _, message := range messages {
			published(t, store, onstore.Key(store, "test", "other"), "not this")
			published(t, store, channel, message)
			if got, missed, err := inbox.Next(t.Context()); err != nil || missed || got != message {
				t.Errorf("%q, %v, %v; want %q", got, missed, err, message)
			}
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if _, _, err := inbox.Next(ended); err == nil {
			t.Error("no error when the context had ended")
		}
		expect.Error(t, "Close", inbox.Close(), nil)
		if _, _, err := inbox.Next(t.Context()); err == nil {
			t.Error("no error after Close")
		}
	})
}

func TestInboxTellsThatItMayHaveMissedSomething(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	store := open(t, server.URL(), nil)
	channel := onstore.Key(store, "test", "channel")
	inbox, err := pipeline.Of(store).Subscribe(t.Context(), channel)
	expect.NoError(t, "Subscribe", err)
	t.Cleanup(func() { _ = inbox.Close() })
	server.Restart()
	if got, missed, err := inbox.Next(t.Context()); err != nil || !missed || got != "" {
		t.Fatalf("after the restart: %q, %v, %v", got, missed, err)
	}
	published(t, store, channel, "again")
	got, missed, err := inbox.Next(t.Context())
	expect.Error(t, "Next after the restart was told", err, nil)
	expect.Equal(t, "messages missed, once more", missed, false)
	expect.Equal(t, "message after the restart", got, "again")
}

func TestSubscribeToAServerThatIsAwayIsRefused(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	store := open(t, server.URL(), func(c *redisstore.Config) { c.Timeout = brief })
	server.Kill()
	soon(t, func() {
		_, err := pipeline.Of(store).Subscribe(t.Context(), "x")
		refused(t, err)
	})
	server.Restart()
	server.Pause()
	soon(t, func() {
		_, err := pipeline.Of(store).Subscribe(t.Context(), "x")
		refused(t, err)
	})
}
