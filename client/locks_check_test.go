//go:build check

package client_test

import (
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/client"
)

// holdsALock is a program of each language that holds a lock, and prints when, in nanoseconds, it
// last asked whether the lock is its own and was told so.
var holdsALock = map[string][]string{
	"python": {"-c", `
import sys, time, coatcheck
last = 0
try:
    lock = coatcheck.Client(sys.argv[1]).acquire_lock("door", ttl=2)
    while True:
        now = time.time_ns()
        lock.check()
        last = now
        time.sleep(0.001)
except coatcheck.Lost:
    print(last)
`},
	"node": {"--input-type=module", "-e", `
import { Client, Lost } from '../clients/node/index.mjs';
let last = 0;
try {
  const lock = await new Client(process.argv[1]).acquireLock('door', { ttl: 2 });
  for (;;) {
    const now = Date.now();
    lock.check();
    last = now;
    await new Promise((end) => setTimeout(end, 1));
  }
} catch (error) {
  if (!(error instanceof Lost)) throw error;
  console.log(last + '000000');
}
`},
}

// Whatever becomes of the renewals, the holder is told of the end before another can have the lock.
func TestALockOfALanguageEndsBeforeAnotherHasIt(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]fault{
		"refused":    hangUp,
		"unanswered": loseReply,
		"proxy":      says(http.StatusBadGateway, "text/html", "bad gateway"),
		"hanging": func(_ http.ResponseWriter, r *http.Request, _ http.Handler) bool {
			discard(r)
			<-r.Context().Done()
			return true
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inEachLanguage(t, func(t *testing.T, l language) {
				s, granted := embedded(t), make(chan struct{})
				var once sync.Once
				s.proxy.disturb(func(w http.ResponseWriter, r *http.Request, service http.Handler) bool {
					if r.Method == http.MethodPost {
						service.ServeHTTP(w, r)
						once.Do(func() { close(granted) })
						return true
					}
					return r.Method == http.MethodPut && fault(w, r, service)
				})
				holder := l.start(t, append(holdsALock[l.name], s.url)...)
				select {
				case <-granted:
				case <-time.After(2 * patience):
					t.Fatal("the process has asked for no lock")
				}
				endsBeforeTheNext(t, s, holder)
			})
		})
	}
}

// endsBeforeTheNext waits for the lock that a process has, and fails the test if the process has
// used it since.
func endsBeforeTheNext(t *testing.T, s *service, holder *worker) {
	t.Helper()
	next, err := s.AcquireLock(t.Context(), "door", client.LockRequest{})
	must(t, "AcquireLock", err)
	defer func() { _ = next.Release(t.Context()) }() // its renewals are disturbed too
	holder.once.Do(func() { _ = holder.cmd.Wait() }) // what it printed is what counts
	last, err := strconv.ParseInt(strings.TrimSpace(holder.stdout.String()), 10, 64)
	if err != nil {
		t.Fatalf("the holder printed %q, %q, want a time", &holder.stdout, &holder.stderr)
	}
	after(t, "when another has the lock, after the last use", next.Since(), time.Unix(0, last))
}
