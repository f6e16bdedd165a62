package idempotency

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
	"sync"
	"time"

	"github.com/coatcheck/coatcheck/internal/fault"
)

// Quota bounds a principal's share of the store, so that none fills it. A field of 0 is no bound.
//
// It is counted in this process, in spans of time: an operation counts from its claim, or a token
// from its issue, for its retention and up to a sixteenth longer. An operation whose key was
// forgotten, since nothing was begun, does not count. So a principal can have as many times its
// quota as there are processes, and again as much after each restart. Answers of attempts that run
// at once come on top. An attempt that is extended past its retention is no longer counted. The
// number of principals is not bounded: while 100,000 have something, others are not counted.
type Quota struct {
	Operations int   // operations that are kept, and tokens that were issued
	Bytes      int64 // of memory that they take in Redis, estimated
}

func (q Quota) check() error {
	if q.Operations < 0 || q.Bytes < 0 {
		return fmt.Errorf("idempotency: quota of %d operations and %d bytes: not below 0", q.Operations, q.Bytes)
	}
	return nil
}

// The measured size of a record in Redis 7: without an answer, and the overhead of an answer longer
// than 64 bytes, which Redis packs less tightly (hash-max-listpack-value).
const (
	recordBytes = 400
	answerBytes = 700
	packedBytes = 64
)

const (
	maxPrincipals = 100_000
	sweepEvery    = time.Minute // at least, while there are as many
)

// quotas counts what principals have in the store. It is safe for concurrent use; a nil one counts
// nothing.
type quotas struct {
	most  Quota
	began time.Time

	mu sync.Mutex
	of map[string]*usage
	// number of principals at which those that have nothing any more are removed
	sweepAt int
	swept   time.Duration // when that was done last, since quotas began
}

// usage is one principal's use of its quota.
type usage struct {
	amount

	spans []span // the one that ends first comes first
}

type amount struct {
	operations int
	bytes      int64
}

// span is the part of a usage that ends at one moment.
type span struct {
	amount

	end time.Duration // since quotas began
}

// charge is an operation that was counted. The zero value was not.
type charge struct {
	quotas    *quotas
	principal string
	end       time.Duration
}

func newQuotas(most Quota) *quotas {
	if most == (Quota{}) {
		return nil
	}
	return &quotas{most: most, began: time.Now(), of: map[string]*usage{}}
}

// take counts an operation that is kept for that long. If the principal's quota is used up it
// counts nothing, and returns [ErrQuota].
func (q *quotas) take(principal string, retention time.Duration) (charge, error) {
	if q == nil {
		return charge{}, nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Since(q.began)
	if used := q.of[principal]; used != nil {
		used.end(now)
		if q.most.Operations > 0 && used.operations >= q.most.Operations || q.most.Bytes > 0 && used.bytes >= q.most.Bytes {
			return charge{}, &fault.WaitError{
				Err: ErrQuota, Wait: used.spans[0].end - now,
				Text: ": as many operations of this caller, or bytes of their answers, are kept as this process takes",
			}
		}
	}
	return q.countLocked(principal, now, retention), nil
}

// count counts an operation in any case.
func (q *quotas) count(principal string, retention time.Duration) charge {
	if q == nil {
		return charge{}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.countLocked(principal, time.Since(q.began), retention)
}

func (q *quotas) countLocked(principal string, now, retention time.Duration) charge {
	used := q.usageLocked(principal, now)
	if used == nil {
		return charge{}
	}
	end := endOf(now, retention)
	used.add(end, amount{1, recordBytes})
	return charge{q, principal, end}
}

func (q *quotas) answered(principal string, retention time.Duration, length int) {
	if q == nil {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	more := amount{bytes: int64(length)}
	if length > packedBytes {
		more.bytes += answerBytes
	}
	now := time.Since(q.began)
	if used := q.usageLocked(principal, now); used != nil {
		used.add(endOf(now, retention), more)
	}
}

// undo takes a charge back: nothing is kept.
func (c charge) undo() {
	q := c.quotas
	if q == nil {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	used := q.of[c.principal]
	if used == nil {
		return // its time is over
	}
	used.add(c.end, amount{-1, -recordBytes})
	used.end(time.Since(q.began))
	if len(used.spans) == 0 {
		delete(q.of, c.principal)
	}
}

// usageLocked returns a principal's usage; nil if there are too many principals to count one more.
func (q *quotas) usageLocked(principal string, now time.Duration) *usage {
	used := q.of[principal]
	if used != nil {
		return used
	}
	if len(q.of) >= q.sweepAt || len(q.of) >= maxPrincipals && now-q.swept >= sweepEvery {
		q.sweepLocked(now)
	}
	if len(q.of) >= maxPrincipals {
		return nil
	}
	used = &usage{}
	q.of[principal] = used
	return used
}

// sweepLocked removes the principals that have nothing any more. It runs again when there are twice
// as many, or after a minute if there can be no more, so that its cost for each is small.
func (q *quotas) sweepLocked(now time.Duration) {
	for principal, used := range q.of {
		if used.end(now); len(used.spans) == 0 {
			delete(q.of, principal)
		}
	}
	q.sweepAt, q.swept = max(1000, 2*len(q.of)), now
}

// endOf is the end of the span of an operation that is kept for that long: not before its end, and
// up to a sixteenth of the retention later.
func endOf(now, retention time.Duration) time.Duration {
	step := int64(1) << max(bits.Len64(uint64(max(retention, 0)/16))-1, 0)
	return time.Duration((int64(now+retention) + step - 1) / step * step)
}

// add adds to the span with an end. Empty spans are removed.
func (u *usage) add(end time.Duration, more amount) {
	at, found := slices.BinarySearchFunc(u.spans, end, func(s span, end time.Duration) int { return cmp.Compare(s.end, end) })
	if !found {
		if more.operations < 0 {
			return // it has ended
		}
		u.spans = append(u.spans, span{})
		copy(u.spans[at+1:], u.spans[at:])
		u.spans[at] = span{end: end}
	}
	u.spans[at].plus(more)
	u.plus(more)
	if u.spans[at].amount == (amount{}) {
		u.spans = slices.Delete(u.spans, at, at+1)
	}
}

// end removes the spans that have ended.
func (u *usage) end(now time.Duration) {
	n := 0
	for n < len(u.spans) && u.spans[n].end <= now {
		u.plus(amount{-u.spans[n].operations, -u.spans[n].bytes})
		n++
	}
	u.spans = slices.Delete(u.spans, 0, n)
}

func (a *amount) plus(more amount) {
	a.operations += more.operations
	a.bytes += more.bytes
}
