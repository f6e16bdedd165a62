//go:build check

package segment_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"sync"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/internal/testing/sqltest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/segment"
)

// fault is what a proxy does with the first request that holds some words.
type fault struct {
	words *regexp.Regexp
	fate  redistest.Fate
	then  func() // before the link is cut

	mu   sync.Mutex
	seen int
}

func (f *fault) judge(request []byte) (redistest.Fate, func()) {
	if !f.words.Match(request) {
		return redistest.Pass, nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.seen++; f.seen > 1 {
		return redistest.Pass, nil
	}
	return f.fate, f.then
}

// sent is how often the words were.
func (f *fault) sent() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.seen
}

// proxied is the table with a proxy in front of its server that has a fault.
func (l leafTable) proxied(t *testing.T, f *fault, timeout time.Duration) *segment.LeafAlloc {
	t.Helper()
	proxy := redistest.StartProxy(t, l.server.Addr(), f.judge)
	db := l.server.OpenPlain(t, proxy.Addr(), l.database)
	return segment.NewLeafAlloc(db, dialects[l.server.Kind()], segment.LeafConfig{Timeout: timeout})
}

// Each row breaks one fetch at one of its steps. What the fetch returns must be true, and what it
// did not get must be a gap.
func TestLeafAllocReportsABrokenFetch(t *testing.T) {
	const hang = 5 * time.Second // the steps before the one that hangs have to be done by then
	eachServer(t, func(t *testing.T, server *sqltest.Server) {
		l := newLeafTable(t, server)
		begin := map[sqltest.Kind]string{sqltest.MariaDB: "START TRANSACTION", sqltest.PostgreSQL: "BEGIN"}[server.Kind()]
		for i, row := range []struct {
			step, words string
			fate        redistest.Fate
			want        error // nil = it is tried again, and succeeds
			moved       bool
		}{
			{"begin, cut before", begin, redistest.CutBefore, nil, true},
			{"begin, cut after", begin, redistest.CutAfter, nil, true},
			{"begin, hangs", begin, redistest.Swallow, redisstore.ErrUnavailable, false},
			{"update, cut before", "UPDATE", redistest.CutBefore, redisstore.ErrUnavailable, false},
			{"update, cut after", "UPDATE", redistest.CutAfter, redisstore.ErrUnavailable, false},
			{"update, hangs", "UPDATE", redistest.Swallow, redisstore.ErrUnavailable, false},
			{"select, cut before", "SELECT biz_tag", redistest.CutBefore, redisstore.ErrUnavailable, false},
			{"select, cut after", "SELECT biz_tag", redistest.CutAfter, redisstore.ErrUnavailable, false},
			{"select, hangs", "SELECT biz_tag", redistest.Swallow, redisstore.ErrUnavailable, false},
			{"commit, cut before", `COMMIT\b`, redistest.CutBefore, redisstore.ErrUnknownOutcome, false},
			{"commit, cut after", `COMMIT\b`, redistest.CutAfter, redisstore.ErrUnknownOutcome, true},
			{"commit, hangs", `COMMIT\b`, redistest.Swallow, redisstore.ErrUnknownOutcome, false},
		} {
			t.Run(row.step, func(t *testing.T) {
				timeout := time.Minute
				if row.fate == redistest.Swallow {
					t.Parallel() // it only waits
					timeout = hang
				}
				tag := fmt.Sprintf("tag-%d", i)
				l.seed(t, tag, 1, 10)
				f := &fault{words: regexp.MustCompile(row.words), fate: row.fate}
				leaf := l.proxied(t, f, timeout)
				first, err := leaf.Take(t.Context(), tag, 0)
				if row.want == nil && err != nil {
					t.Errorf("Take, which is tried again: got error %v, want none", err)
				}
				if row.want != nil {
					refused(t, err, row.want)
				}
				if row.fate == redistest.Swallow && !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("the deadline is not in %v", err)
				}
				if moved := l.tag(t, tag).MaxID == 11; moved != row.moved || l.tag(t, tag).MaxID > 11 {
					t.Errorf("max_id is %d", l.tag(t, tag).MaxID)
				}
				if sent := f.sent(); sent == 0 || row.want != nil && sent > 1 {
					t.Errorf("%q was sent %d times", row.words, sent)
				}
				second, err := l.Take(t.Context(), tag, 0) // by another process
				if err != nil || second.Lo < first.Hi || row.moved && second.Lo != 11 {
					t.Errorf("after %+v came %+v, %v", first, second, err)
				}
			})
		}
	})
}

// A link that breaks silently leaves the transaction open, and the row locked, for as long as the
// server believes in it.
func TestLinkThatBreaksSilentlyKeepsNoRowLockedForLong(t *testing.T) {
	eachServer(t, func(t *testing.T, server *sqltest.Server) {
		l := newLeafTable(t, server)
		// as docs/segments.md says; the source sets it in PostgreSQL
		if server.Kind() == sqltest.MariaDB {
			setting(t, server, "idle_write_transaction_timeout", "1")
		}
		l.seed(t, "orders", 1, 10)
		ended := make(chan struct{})
		f := &fault{words: regexp.MustCompile(`COMMIT\b`), fate: redistest.CutBefore, then: func() { <-ended }}
		leaf := l.proxied(t, f, 5*time.Second) // enough to get as far as the commit
		defer close(ended)
		_, err := leaf.Take(t.Context(), "orders", 0)
		refused(t, err, redisstore.ErrUnknownOutcome)
		waiting := segment.NewLeafAlloc(server.OpenDatabase(t, l.database), dialects[server.Kind()], segment.LeafConfig{Timeout: time.Minute})
		expect.Equal(t, "the first id, as the first fetch was rolled back", take(t, waiting, "orders", 0).Lo, 1)
	})
}

// A server is killed three times under takers that go on as they can.
func TestKilledServerHandsOutNoIDTwice(t *testing.T) {
	sqltest.Each(t, func(t *testing.T, server *sqltest.Server) {
		l := newLeafTable(t, server)
		l.seed(t, "orders", 1, 10)
		sequence := newSequence(t, l, 10)
		var leafs, numbers book
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for range 4 {
			leaf := l.another(t)
			all.Go(func() { leafs.keep(ctx, leaf, 1<<30) })
			all.Go(func() { numbers.keep(ctx, sequence, 1<<30) })
		}
		for round := range 3 {
			awaitMore(t, &leafs, round*100+50)
			awaitMore(t, &numbers, round*100+50)
			server.Kill()
			server.Restart(t)
		}
		awaitMore(t, &leafs, 400)
		awaitMore(t, &numbers, 400)
		cancel()
		all.Wait()
		leafs.check(t)
		numbers.check(t)
		if leafs.faults == 0 || numbers.faults == 0 {
			t.Error("no taker noticed that the server was killed")
		}
	})
}

// awaitMore waits until there are so many ranges in a book.
func awaitMore(t *testing.T, b *book, enough int) {
	t.Helper()
	expect.Eventually(t, fmt.Sprintf("%d ranges are taken", enough), func() bool { return b.count() >= enough })
}

// Links are cut silently under load, at whatever step each taker is, and others come.
func TestLinksThatAreCutUnderLoadHandOutNoIDTwice(t *testing.T) {
	eachServer(t, func(t *testing.T, server *sqltest.Server) {
		l := newLeafTable(t, server)
		l.seed(t, "orders", 1, 10)
		var taken book
		var all sync.WaitGroup
		for round := range 3 {
			link := redistest.StartProxy(t, server.Addr(), nil)
			ctx, cancel := context.WithCancel(t.Context())
			for range 4 {
				leaf := segment.NewLeafAlloc(server.OpenPlain(t, link.Addr(), l.database), dialects[server.Kind()], segment.LeafConfig{Timeout: time.Second})
				all.Go(func() { taken.keep(ctx, leaf, 1<<30) })
			}
			awaitMore(t, &taken, taken.count()+30)
			link.Swallow()
			awaitFaults(t, &taken, (round+1)*4)
			// a server keeps each connection of theirs that came to nothing, and takes only so many
			cancel()
		}
		taken.keep(t.Context(), l, taken.count()+30)
		all.Wait()
		taken.check(t)
	})
}

func awaitFaults(t *testing.T, b *book, enough int) {
	t.Helper()
	expect.Eventually(t, fmt.Sprintf("%d calls have failed", enough), func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.faults >= enough
	})
}
