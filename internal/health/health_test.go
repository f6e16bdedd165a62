package health_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/health"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/logtest"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/redisstore/observe"
)

// looks counts calls to the store.
type looks struct {
	observe.None

	mu sync.Mutex
	n  int
}

func (l *looks) CallStarted(ctx context.Context, _ string) context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.n++
	return ctx
}

func titleOf(err error) string {
	if errors.Is(err, redisstore.ErrUnavailable) {
		return "away"
	}
	return "failed"
}

func checker(store *redisstore.Store, log *slog.Logger) *health.Checker {
	return health.New(health.Config{Store: store, Title: titleOf, Changed: func(context.Context, health.Incarnation) {}, Stopping: new(atomic.Bool), Logger: log})
}

func TestProcessThatStopsSaysSoAndAsksNoStore(t *testing.T) {
	var stopping atomic.Bool
	stopping.Store(true)
	c := health.New(health.Config{Stopping: &stopping}) // it has no store to ask
	expect.Equal(t, "Check at a stop", c.Check(t.Context()), health.Answer{Class: "stopping", Reason: "stopping"})
}

func TestManyChecksAreOneLookASecond(t *testing.T) {
	count := &looks{}
	store := storetest.Open(t, redisstore.Config{URL: redistest.Start(t).URL(), Observers: []observe.Observer{count}})
	c := checker(store, slog.New(slog.DiscardHandler))
	began := time.Now()
	var crowd sync.WaitGroup
	for range 50 {
		crowd.Go(func() {
			for range 20 {
				gone, leave := context.WithCancel(t.Context())
				leave() // a caller that has left does not end the look
				if got := c.Check(gone); got.Reason != "" || got.Incarnation == "" {
					t.Errorf("Check: got %+v, want an incarnation and no reason", got)
				}
			}
		})
	}
	crowd.Wait()
	most := int(time.Since(began)/time.Second) + 1
	if count.n > most || count.n == 0 {
		t.Errorf("1000 checks in %v: got %d calls to the store, want 1 to %d", time.Since(began), count.n, most)
	}
}

func TestEndAndReturnOfAStoreAreLoggedOnce(t *testing.T) {
	redis := redistest.Start(t)
	log := &logtest.Text{}
	c := checker(storetest.Open(t, redisstore.Config{URL: redis.URL(), Timeout: time.Minute}), log.Logger())
	expect.Equal(t, "reason of a store that works", c.Check(t.Context()).Reason, "")
	redis.Kill()
	expect.Eventually(t, "the store is seen to be away", func() bool { return c.Check(t.Context()) == health.Answer{Class: "away", Reason: "away"} })
	redis.Restart()
	expect.Eventually(t, "the store is seen to be back", func() bool { return c.Check(t.Context()).Reason == "" })
	expect.Equal(t, "lines that say that it is not ready, and ready again", [2]int{
		strings.Count(log.String(), `msg="not ready" reason=away`), strings.Count(log.String(), `msg="ready again"`),
	}, [2]int{1, 1})
}

func TestAddressesOfThisMachine(t *testing.T) {
	for from, want := range map[string]bool{
		"127.0.0.1:80": true, "127.1.2.3:80": true, "[::1]:80": true, "[::ffff:127.0.0.1]:80": true,
		"192.0.2.1:80": false, "[2001:db8::1]:80": false, "": false, "@": false, "localhost:80": false,
	} {
		expect.Equal(t, "a request from "+from+" is from this machine", health.FromThisMachine(&http.Request{RemoteAddr: from}), want)
	}
}
