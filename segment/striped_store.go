package segment

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/coatcheck/coatcheck/redisstore"
)

// StripeStats are the statistics of a store's calls.
type StripeStats struct {
	Index     int
	Taken     uint64    // ranges
	Refused   uint64    // calls in which nothing was taken
	Unknown   uint64    // calls after which something may have been taken: gaps
	DownUntil time.Time // until when it is passed over; zero = it is not
	LastError string    // "" = there was none
}

type stripeStore struct {
	source Source
	index  int64

	mu    sync.Mutex
	stats StripeStats
	row   int // how many failures there were since the last answer
}

// downFor is how long a store is passed over.
func (s *stripeStore) downFor(now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(0, s.stats.DownUntil.Sub(now))
}

// note counts a call by its outcome. A store that is away, or that does not answer, is down for a
// while; one that refuses is not. given is why the caller has given up, if it has.
func (s *stripeStore) note(err, given error, log *slog.Logger) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err == nil:
		s.stats.Taken++
	case errors.Is(err, redisstore.ErrUnknownOutcome):
		s.stats.Unknown++
	default:
		s.stats.Refused++
	}
	if err != nil {
		s.stats.LastError = err.Error()
	}
	switch {
	case !away(err):
		if s.row > 0 {
			log.Info("segment: a store is back", "stripe", s.index)
		}
		s.row, s.stats.DownUntil = 0, time.Time{}
	// not its fault, or known already: many calls may fail at once
	case errors.Is(given, context.Canceled) || s.stats.DownUntil.After(now):
	default:
		if s.row == 0 {
			log.Warn("segment: a store is away, and passed over", "stripe", s.index, "error", err)
		}
		s.row++
		s.stats.DownUntil = now.Add(backoff(s.row))
	}
}
