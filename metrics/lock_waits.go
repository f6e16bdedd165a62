package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// lockWaits are the requests for locks that may wait.
type lockWaits struct {
	took *prometheus.HistogramVec
	now  spans
}

const notObtain = "not_granted"

func (s *Store) locksWaitedFor(r *Registry) {
	s.waits.took = r.Histogram("coatcheck_lock_wait_seconds",
		"How long requests that may wait have waited for a lock, by outcome.", Patient, "outcome")
	begin(s.waits.took, Granted, notObtain)
	r.Ask("coatcheck_lock_waiting", KindGauge, "Requests of this process that wait for a lock.", nil, func(tell Tell) {
		n, _ := s.waits.now.now()
		tell(float64(n))
	})
	r.Ask("coatcheck_lock_longest_wait_seconds", KindGauge,
		"How long the waiter of one of them has waited, of all the longest, its earlier requests for the same place in the queue "+
			"included; 0 = none waits.", nil, func(tell Tell) {
			if n, first := s.waits.now.now(); n > 0 {
				tell(since(first))
				return
			}
			tell(0)
		})
}

// lockWaits notes that a request for a lock begins to wait.
func (s *Store) lockWaits() (waited func(time.Duration), ended func(granted bool)) {
	began := time.Now()
	place := s.waits.now.begin(began)
	waited = func(by time.Duration) { s.waits.now.since(place, time.Now().Add(-by)) }
	return waited, func(granted bool) {
		s.waits.now.end(place)
		outcome := notObtain
		if granted {
			outcome = Granted
		}
		s.waits.took.WithLabelValues(outcome).Observe(since(began))
	}
}
