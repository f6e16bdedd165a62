package lock

import (
	"bytes"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/notifier"
	"github.com/coatcheck/coatcheck/internal/secret"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
)

// slow is how long a request about a lock takes from a process to Redis.
const slow = 50 * time.Millisecond

// farProcess is a process on a slow link, which records when the last request about a lock was sent
// to Redis.
type farProcess struct {
	*Locks

	mu   sync.Mutex
	left time.Time
}

func openFar(t *testing.T, server *redistest.Server) *farProcess {
	t.Helper()
	p := &farProcess{}
	proxy := redistest.StartProxy(t, server.Addr(), func(request []byte) (redistest.Fate, func()) {
		if bytes.Contains(request, []byte(":lock:{late}")) {
			p.mu.Lock()
			p.left = time.Now()
			p.mu.Unlock()
			time.Sleep(slow)
		}
		return redistest.Pass, nil
	})
	p.Locks = open(t, storetest.Open(t, redisstore.Config{URL: proxy.URL()}), Config{Window: 30 * time.Second})
	return p
}

// since is how long ago the last request left.
func (p *farProcess) since() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Since(p.left)
}

// A lease begins at Redis at some time between the request that granted it and the reply; the
// process cannot know when. So a holder counts from before that request was sent, also if another
// sent it. Each row is a way of being granted a lock.
func TestEveryGrantCountsFromBeforeItWasAskedFor(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	near := open(t, storetest.Open(t, redisstore.Config{URL: server.URL()}), Config{Window: 30 * time.Second})
	for _, row := range []struct {
		name string
		good time.Duration // less its margin
		hold func(t *testing.T, far *farProcess, request Request) *Lock
	}{
		{"at once", 59 * time.Second, func(t *testing.T, far *farProcess, request Request) *Lock { return must(t, far.Locks, "late", request) }},
		{"as the heir of another process, by its message", 29 * time.Second, func(t *testing.T, far *farProcess, request Request) *Lock {
			held := must(t, near, "late", Request{})
			heir := startWaiter(t, far.Locks, "late", request, 1)
			release(t, held)
			return heir.granted(t)
		}},
		{"as an heir within the process, by its release", 59 * time.Second, func(t *testing.T, far *farProcess, request Request) *Lock {
			held := must(t, far.Locks, "late", Request{})
			heir := startWaiter(t, far.Locks, "late", request, 1)
			release(t, held)
			return heir.granted(t)
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			far := openFar(t, server)
			for _, request := range []Request{{TTL: time.Minute}, {TTL: time.Minute, Mode: ModeShared}} {
				held := row.hold(t, far, request)
				most := row.good - far.since()
				if valid := held.Validity(); valid > most {
					t.Errorf("mode %q: it counts on %v, and at most %v are left", request.Mode, valid, most)
				}
				release(t, held)
			}
		})
	}
}

// A message may come when its request has ended and another one with the same token waits, which it
// does not concern: the lock is another's by then.
func TestLateMessageOfAnEarlierRequestGrantsNothing(t *testing.T) {
	bubble(t, func(t *testing.T, store *redisstore.Store) {
		one, other := open(t, store, Config{}), open(t, store, Config{})
		var told []notification
		other.notifier = notifier.New(store, other.inbox, other.log, func(message string) (string, notification) {
			token, what := parseNotification(message)
			told = append(told, what)
			return token, what
		})
		other.notifier.Listen(t.Context())
		request := Request{Token: secret.New()}
		for round := range 3 {
			late := slices.Clone(told)
			if round == 2 { // by a release in its process
				late = append(late, notification{fence: 1 << 52, now: time.Now(), sent: time.Now()})
			}
			time.Sleep(time.Millisecond)
			held := must(t, one, "late", Request{})
			heir := settle(t, wait(t, other, "late", request))
			for _, what := range late {
				other.notifier.Notify(request.Token, what)
				settle(t, heir)
			}
			release(t, held)
			release(t, heir.granted(t))
		}
		expect.Equal(t, "messages", len(told), 3)
	})
}
