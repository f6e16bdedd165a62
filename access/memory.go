package access

import (
	"context"
	"log/slog"
	"strconv"
	"time"

	"github.com/throttled/throttled/v2"

	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/scripts"
)

// memory is the state of one principal: in the store, and as this server has seen it last. It is a
// store of package throttled. One goroutine at a time uses it.
type memory struct {
	store *redisstore.Store
	log   *slog.Logger
	keys  []string

	until int64     // as in the store: nanoseconds since 1970, none or unknown
	kept  time.Time // until when the store has it
	clock int64     // the store's, nanoseconds since 1970, at
	at    time.Time // by this process's
	away  time.Time // until when the store is not asked, since it did not answer; zero = it does
}

const (
	unknown   = -2 // the store has to be asked
	none      = -1
	awayFor   = time.Second
	maxSwaps  = 50                   // that may find that another server was faster
	keepLeast = time.Second          // that the store keeps a state, so that most requests find it
	storeSlip = 2 * time.Millisecond // beside what it was told, since it counts in whole ones
)

// take counts n requests.
func (m *memory) take(ctx context.Context, limit Limit, n int) (bool, throttled.RateLimitResult, error) {
	limiter, err := throttled.NewGCRARateLimiterCtx(m,
		throttled.RateQuota{MaxRate: throttled.PerDuration(limit.Rate.N, limit.Rate.Per), MaxBurst: limit.burst()})
	if err != nil {
		return false, throttled.RateLimitResult{}, err
	}
	limiter.SetMaxCASAttemptsLimit(maxSwaps)
	limited, result, err := limiter.RateLimitCtx(ctx, "", n)
	return limited, result, err
}

// now is the store's clock, by this process's since the last answer: ahead of it only by drift.
func (m *memory) now() time.Time { return time.Unix(0, m.clock+int64(time.Since(m.at))) }

// GetWithTime implements throttled.GCRAStoreCtx: from memory if there is one, else from the store.
func (m *memory) GetWithTime(ctx context.Context, _ string) (int64, time.Time, error) {
	if m.until == unknown && !m.isAway() {
		reply, err := m.store.Run(ctx, scripts.RateGet, m.keys)
		if err == nil {
			err = m.learn(reply.Scan, &m.until)
			m.kept = time.Unix(0, m.until).Add(keepLeast) // as far as can be told
		}
		if err != nil {
			m.lose(err)
		}
	}
	if m.until == unknown {
		m.until, m.clock, m.at = none, time.Now().UnixNano(), time.Now()
	}
	now := m.now()
	if m.until != none && now.After(m.kept.Add(storeSlip)) {
		m.until = none // the store has forgotten it by now
	}
	return m.until, now, nil
}

// learn reads a reply whose last word is the store's clock.
func (m *memory) learn(scan func(...any) error, into ...any) error {
	m.at = time.Now()
	return scan(append(into, &m.clock)...)
}

func (m *memory) SetIfNotExistsWithTTL(ctx context.Context, key string, value int64, ttl time.Duration) (bool, error) {
	return m.CompareAndSwapWithTTL(ctx, key, none, value, ttl)
}

// CompareAndSwapWithTTL implements throttled.GCRAStoreCtx. If the store does not answer, or the
// outcome is unknown, memory counts.
func (m *memory) CompareAndSwapWithTTL(ctx context.Context, _ string, old, value int64, ttl time.Duration) (bool, error) {
	keep := max(ttl+time.Millisecond, keepLeast)
	if m.isAway() {
		m.until, m.kept = value, m.now().Add(keep)
		return true, nil
	}
	reply, err := m.store.Run(ctx, scripts.RateSwap, m.keys, strconv.FormatInt(old, 10), strconv.FormatInt(value, 10), keep.Milliseconds())
	switch {
	case err != nil:
	case reply.Word() == "done":
		err = m.learn(reply.Scan)
		m.until, m.kept = value, m.now().Add(keep)
	case reply.Word() == "other":
		err = m.learn(reply.Scan, &m.until)
		m.kept = time.Unix(0, m.until).Add(keepLeast)
		return false, err
	default:
		err = reply.Unexpected()
	}
	if err != nil {
		m.lose(err)
		m.until, m.kept = value, m.now().Add(keep)
	}
	return true, nil
}

func (m *memory) isAway() bool { return time.Now().Before(m.away) }

// lose has this server count by itself for a while.
func (m *memory) lose(err error) {
	if m.away.IsZero() || time.Since(m.away) > awayFor {
		m.log.Warn("the store does not count requests; this server counts by itself", "error", err)
	}
	m.away = time.Now().Add(awayFor)
}
