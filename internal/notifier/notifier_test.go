package notifier_test

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/internal/notifier"
	"github.com/coatcheck/coatcheck/internal/onstore"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/logtest"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/scripts"
)

func open(t *testing.T, store *redisstore.Store) *notifier.Notifier[string] {
	t.Helper()
	n := notifier.New(store, onstore.Key(store, "test", "channel"), slog.New(slog.DiscardHandler), func(message string) (string, string) {
		return message[:1], message[1:]
	})
	t.Cleanup(n.Close)
	return n
}

// nothing reports that a waiter was not woken.
func nothing(t *testing.T, who string, waiter <-chan string) {
	t.Helper()
	select {
	case got := <-waiter:
		t.Errorf("%s was woken with %q", who, got)
	default:
	}
}

func TestMessageWakesAllWaitersOfItsKeyAndNoOthers(t *testing.T) {
	storetest.Each(t, func(t *testing.T, store *redisstore.Store) {
		n := open(t, store)
		expect.Equal(t, "channel before Listen", n.Channel(), "")
		one, forgetOne := n.Expect("a")
		two, forgetTwo := n.Expect("a")
		gone, forgetGone := n.Expect("a")
		other, forgetOther := n.Expect("b")
		defer forgetOne()
		defer forgetTwo()
		defer forgetOther()
		forgetGone()
		n.Listen(t.Context())
		expect.Equal(t, "channel after Listen", n.Channel(), onstore.Key(store, "test", "channel"))
		publish(t, store, "a1")
		expect.Equal(t, "what the first waiter of a gets", <-one, "1")
		expect.Equal(t, "what the second waiter of a gets", <-two, "1")
		nothing(t, "a waiter that was forgotten", gone)
		nothing(t, "the waiter of b", other)
		publish(t, store, "b2")
		expect.Equal(t, "what the waiter of b gets", <-other, "2")
	})
}

// A waiter that has not looked since it was woken gets one value: its poll has the rest.
func TestSecondWakeOfAWaiterThatHasNotLookedIsDropped(t *testing.T) {
	n := open(t, storetest.Open(t, redisstore.Config{URL: "embedded:"}))
	waiter, forget := n.Expect("a")
	defer forget()
	n.Notify("a", "first")
	n.NotifyAll("second")
	expect.Equal(t, "what the waiter gets", <-waiter, "first")
	nothing(t, "it", waiter)
}

// Each waiter tries to subscribe, and a refusal that stays is in the log once.
func TestRefusalToSubscribeIsLoggedOnce(t *testing.T) {
	server := redistest.Start(t)
	expect.MustEqual(t, "error of ACL SETUSER", server.Client().Do(t.Context(), "ACL", "SETUSER", "few", "on", ">word", "~*", "&*", "+@all",
		"-subscribe").Err(), nil)
	log := &logtest.Text{}
	store := storetest.Open(t, redisstore.Config{URL: strings.Replace(server.URL(), "://", "://few:word@", 1)})
	n := notifier.New(store, onstore.Key(store, "test", "channel"), log.Logger(), func(message string) (string, string) { return message, "" })
	for range 3 {
		n.Listen(t.Context())
		expect.Equal(t, "channel", n.Channel(), "")
	}
	n.Close()
	expect.Equal(t, "lines about the subscription", strings.Count(log.String(), "the subscription failed"), 1)
}

func TestNothingIsSubscribedAfterClose(t *testing.T) {
	n := open(t, storetest.Open(t, redisstore.Config{URL: "embedded:"}))
	n.Listen(t.Context())
	n.Close()
	expect.Equal(t, "channel after Close", n.Channel(), "")
	n.Listen(t.Context())
	expect.Equal(t, "channel after Close and another Listen", n.Channel(), "")
}

func publish(t *testing.T, store *redisstore.Store, message string) {
	t.Helper()
	const source = "return {'ok', redis.call('PUBLISH', ARGV[1], ARGV[2])}"
	script := scripts.New("publish", source)
	if _, err := onstore.Run(t.Context(), store, script, []string{onstore.Key(store, "test", message)},
		onstore.Key(store, "test", "channel"), message); err != nil {
		t.Fatalf("publishing %q: got error %v, want none", message, err)
	}
}
