package lock

import (
	"bytes"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
)

// rivals are two processes. The second's requests about a lock are counted, and are dropped once it
// is cut off.
type rivals struct {
	one, other *Locks
	asked      atomic.Int64
	cut        atomic.Bool
}

func openRivals(t *testing.T, config Config) *rivals {
	t.Helper()
	server := redistest.Start(t)
	r := &rivals{}
	proxy := redistest.StartProxy(t, server.Addr(), func(request []byte) (redistest.Fate, func()) {
		if !bytes.Contains(request, []byte(":lock:{early}")) {
			return redistest.Pass, nil
		}
		r.asked.Add(1)
		if r.cut.Load() {
			return redistest.Swallow, nil
		}
		return redistest.Pass, nil
	})
	r.one = open(t, storetest.Open(t, redisstore.Config{URL: server.URL()}), config)
	r.other = open(t, storetest.Open(t, redisstore.Config{URL: proxy.URL(), Timeout: 3 * time.Second}), config)
	return r
}

// A waiter that gets the lock from another process begins with the notification, without an answer
// from Redis. Redis knows of it.
func TestHeirBeginsWithTheNotification(t *testing.T) {
	t.Parallel()
	r := openRivals(t, Config{Window: 30 * time.Second})
	for _, request := range []Request{{TTL: time.Minute}, {TTL: time.Minute, Mode: ModeShared}, {TTL: time.Minute, Mode: ModePermits}} {
		held := must(t, r.one, "early", Request{})
		heir := startWaiter(t, r.other, "early", request, 1)
		r.cut.Store(true)
		release(t, held)
		got := heir.granted(t) // its requests are not answered
		r.cut.Store(false)
		shown := info(t, r.one, "early")
		if got.Fence() <= held.Fence() || len(shown.Holders) != 1 || shown.Holders[0].Fence != got.Fence() || !shown.Holders[0].Since.Equal(got.Since()) {
			t.Errorf("mode %q: fence %d since %v after %d; Redis has %+v", request.Mode, got.Fence(), got.Since(), held.Fence(), shown.Holders)
		}
		wantHeld(t, r.one, "early", Request{})
		release(t, got)
	}
}

// With WholeTTL it asks first, and has the whole TTL.
func TestHeirThatWantsAWholeTTLAsksFirst(t *testing.T) {
	t.Parallel()
	r := openRivals(t, Config{Window: 30 * time.Second})
	held := must(t, r.one, "early", Request{})
	heir := startWaiter(t, r.other, "early", Request{TTL: time.Minute, Owner: "both", WholeTTL: true}, 1)
	before := r.asked.Load()
	release(t, held)
	got := heir.granted(t)
	if valid, asked := got.Validity(), r.asked.Load()-before; asked == 0 || valid < 45*time.Second {
		t.Errorf("%v after %d requests", valid, asked)
	}
	next := startWaiter(t, r.other, "early", Request{TTL: time.Minute, Owner: "both", WholeTTL: true}, 1)
	release(t, got)
	release(t, next.granted(t))
}

// Before a window has passed it has asked for the rest of its TTL.
func TestHeirAsksForTheRestOfItsTTL(t *testing.T) {
	t.Parallel()
	r := openRivals(t, Config{Window: 5 * time.Second})
	held := must(t, r.one, "early", Request{})
	heir := startWaiter(t, r.other, "early", Request{TTL: time.Minute}, 1)
	release(t, held)
	got := heir.granted(t)
	expect.Eventually(t, "it counts on more than a window", func() bool { return got.Validity() > 5*time.Second })
	if left := time.Until(info(t, r.one, "early").Holders[0].Until); left < 30*time.Second {
		t.Errorf("Redis has it for %v", left)
	}
	time.Sleep(5 * time.Second) // the window
	expect.Error(t, "Err after the window", got.Err(), nil)
	wantHeld(t, r.one, "early", Request{})
	release(t, got)
}

// One that cannot ask ends with its window, and the lock goes to the next.
func TestHeirThatCannotAskEndsWithItsWindow(t *testing.T) {
	t.Parallel()
	r := openRivals(t, Config{Window: 5 * time.Second})
	held := must(t, r.one, "early", Request{})
	heir := startWaiter(t, r.other, "early", Request{TTL: time.Minute}, 1)
	r.cut.Store(true)
	release(t, held)
	got := heir.granted(t)
	next := wait(t, r.one, "early", Request{})
	after := next.granted(t)
	if got.Validity() > 0 {
		t.Errorf("the next one has it, and this one counts on %v more", got.Validity())
	}
	<-got.Done()
	wantIs(t, got.Err(), ErrLost)
	if after.Fence() <= got.Fence() {
		t.Errorf("fence %d after %d", after.Fence(), got.Fence())
	}
	r.cut.Store(false)
	wantIs(t, got.Release(t.Context()), ErrLost) // though it has its place in the queue again
	release(t, after)
}

// A notification counts as a grant only if the poll that it names shows how much of the window
// remains at least, and that is enough.
func TestNotificationThatIsNoGrant(t *testing.T) {
	t.Parallel()
	const window = 30 * time.Second
	poll2 := func(ago time.Duration) poll { return poll{2, time.Now().Add(-ago)} }
	told := notification{fence: 7, poll: 2, window: window, now: time.Now()}
	for _, row := range []struct {
		name   string
		config Config
		ack    int
		a      asker
		told   notification
		want   bool
	}{
		{"a grant", Config{}, 0, asker{enters: true, waited: poll2(0)}, told, true},
		{"half of the window is over", Config{}, 0, asker{enters: true, waited: poll2(window/2 + time.Second)}, told, false},
		{"not quite half of it", Config{}, 0, asker{enters: true, waited: poll2(window/2 - time.Second)}, told, true},
		{"an earlier poll, whose lease is over or not", Config{}, 0, asker{enters: true, waited: poll{3, time.Now()}}, told, false},
		{"a poll whose answer has not come", Config{}, 0, asker{enters: true, waited: poll{1, time.Now()}}, told, false},
		{"no poll was answered", Config{}, 0, asker{enters: true}, told, false},
		{"the wall clock has gone on, as after a suspend", Config{}, 0, asker{enters: true, waited: poll{2, time.Now().Round(0).Add(-window)}}, told, false},
		{"the grant is wanted as a value", Config{}, 0, asker{waited: poll2(0)}, told, false},
		{"replicas are to confirm it", Config{}, 1, asker{enters: true, waited: poll2(0)}, told, false},
		{"a longer margin is wanted", Config{Margin: window/10 + 1}, 0, asker{enters: true, waited: poll2(0)}, told, false},
		{"a TTL that is shorter than the window", Config{}, 0, asker{enters: true, waited: poll2(2 * time.Second), Request: Request{TTL: 3 * time.Second}}, told, false},
	} {
		if row.a.TTL == 0 {
			row.a.TTL = time.Minute
		}
		locks := open(t, embeddedStore(t).WithAck(row.ack), row.config)
		grant, got := locks.accept(&row.a, row.told)
		expect.Equal(t, row.name+": what became of the grant", got, row.want)
		expect.Equal(t, row.name+": fence", grant.Fence, 7)
		expect.Equal(t, row.name+": how long it is good for", grant.goodFor(), min(window, row.a.TTL))
		expect.Equal(t, row.name+": since when it counts", grant.sent, row.a.waited.sent)
	}
}

// A stale notification, of a window that has passed, makes its waiter poll, and does not grant it
// another holder's lock.
func TestStaleNotificationGrantsNothing(t *testing.T) {
	t.Parallel()
	r := openRivals(t, Config{Window: 30 * time.Second})
	held := must(t, r.one, "early", Request{})
	heir := startWaiter(t, r.other, "early", Request{TTL: time.Minute}, 1)
	before := r.asked.Load()
	// its first poll waited for nothing
	r.other.notifier.NotifyAll(notification{fence: 1 << 52, poll: 1, now: time.Now()})
	expect.Eventually(t, "it polls", func() bool { return r.asked.Load() > before })
	heir.stillWaits(t)
	release(t, held)
	if got := heir.granted(t); got.Fence() <= held.Fence() || got.Fence() == 1<<52 {
		t.Errorf("fence %d after %d", got.Fence(), held.Fence())
	} else {
		release(t, got)
	}
}

func FuzzParseNotification(f *testing.F) {
	for _, text := range []string{"", "t", "t 5 1700000000000 1 1000", "t 5 1700000000000 1", "t 5 1700000000000 1 2 3", "t 0 1 1 1", "t -5 1 1 1", "t 5 1 0 1", "t 5 1 1 0", "t 5 1 1 86400001", " 5 1 1 1", "t  5 1 1 1", "t x y z 1", "t 9223372036854775808 1 1 1"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		token, what := parseNotification(text)
		if strings.Contains(token, " ") || !what.sent.IsZero() {
			t.Errorf("parseNotification(%q): got token %q and %+v, want a token of one word, never sent", text, token, what)
		}
		if what == (notification{}) {
			return
		}
		written := token + " " + strconv.FormatInt(what.fence, 10) + " " + strconv.FormatInt(what.now.UnixMilli(), 10) + " " + strconv.FormatInt(what.poll, 10) + " " + strconv.FormatInt(what.window.Milliseconds(), 10)
		if again, same := parseNotification(written); what.fence <= 0 || what.poll <= 0 || what.window <= 0 || again != token || same != what {
			t.Errorf("%q: %q %+v, again %q %+v", text, token, what, again, same)
		}
	})
}
