package metrics

import (
	"cmp"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// Service are the metrics of one HTTP service. It is safe for concurrent use.
type Service struct {
	*Store

	requests *prometheus.CounterVec
	codes    []string // of problems that there can be
	problems *prometheus.CounterVec
	took     *prometheus.HistogramVec
	inFlight prometheus.Gauge

	increments, values prometheus.Counter
	ids                *prometheus.CounterVec

	fetches *prometheus.HistogramVec

	limitRequests *prometheus.CounterVec
	limitReturned prometheus.Counter

	lockRequests, lockRenewals, lockReleases *prometheus.CounterVec
	lockBreaks                               prometheus.Counter
	holds                                    holds
}

// Results of what was asked of a lock, as the label "outcome" has them.
const (
	Granted  = "granted"
	Held     = "held"     // by others, for as long as the request was willing to wait
	InDoubt  = "in_doubt" // leases of it may have been lost
	Capacity = "capacity" // it is in use with another number of permits
	Undone   = "undone"   // it was granted, and given back since the client had gone
	Failed   = "failed"   // Redis has not answered
	Done     = "ok"       // of a renewal or a release
	Gone     = "lost"     // the same: no longer the caller's
)

// Allowed is the result of a request to a rate limit, beside Refused and Failed.
const Allowed = "allowed"

var idKinds = []string{"snowflake", "segment", "uuid", "ulid", "typeid"}

// NewService returns the metrics of a service of this version.
func NewService(version string) *Service {
	s := &Service{Store: NewStore(version)}
	r := s.Registry
	s.requests = r.Counter("coatcheck_http_requests_total",
		"Requests by the pattern of their route (- for none), method (other for what HTTP does not know) and status.",
		"route", "method", "status")
	s.problems = r.Counter("coatcheck_http_problems_total",
		"Requests that were refused or failed, by the code of the problem that the client was told.", "code")
	s.took = r.Histogram("coatcheck_http_request_duration_seconds",
		"How long requests took, by route; those that wait for a lock with the wait, and without those of /events.", Patient, "route")
	s.inFlight = r.Gauge("coatcheck_http_requests_in_flight", "Requests under way.").WithLabelValues()
	s.numbers(r)
	s.locks(r)
	return s
}

func (s *Service) numbers(r *Registry) {
	s.increments = r.Counter("coatcheck_counter_increments_total", "Requests that got values of a counter.").WithLabelValues()
	s.values = r.Counter("coatcheck_counter_values_total", "Values of counters that were handed out.").WithLabelValues()
	s.ids = r.Counter("coatcheck_ids_total", "Ids that were handed out, by kind.", "kind")
	begin(s.ids, idKinds...)
	s.fetches = r.Histogram("coatcheck_segment_fetch_duration_seconds",
		"How long it took to fetch a range of ids from its source, by outcome.", Quick, "outcome")
	begin(s.fetches, Done, Failed)
	s.limitRequests = r.Counter("coatcheck_limit_requests_total",
		"Requests to rate limits, by outcome: allowed, refused, failed (Redis has not answered). Those that give back are not among "+
			"them.", "outcome")
	begin(s.limitRequests, Allowed, string(OutcomeRefused), Failed)
	s.limitReturned = r.Counter("coatcheck_limit_returned_total",
		"What was given back to rate limits, as callers stated it.").WithLabelValues()
}

func (s *Service) locks(r *Registry) {
	s.lockRequests = r.Counter("coatcheck_lock_requests_total",
		"Requests for locks, by outcome: granted, held (by others, for as long as the request was willing to wait), in_doubt "+
			"(leases may have been lost), capacity (another number of "+
			"permits), undone (granted, and the client had gone), failed.", "outcome")
	begin(s.lockRequests, Granted, Held, InDoubt, Capacity, Undone, Failed)
	s.lockRenewals = r.Counter("coatcheck_lock_renewals_total", "Renewals of locks' leases, by outcome.", "outcome")
	s.lockReleases = r.Counter("coatcheck_lock_releases_total", "Locks that were given back, by outcome.", "outcome")
	begin(s.lockRenewals, Done, Gone, Failed)
	begin(s.lockReleases, Done, Gone, Failed)
	s.lockBreaks = r.Counter("coatcheck_lock_breaks_total", "Locks that were taken from their holder by force.").WithLabelValues()
	s.holds.took = r.Histogram("coatcheck_lock_hold_seconds",
		"How long locks were held that were granted and given back through this process.", Long).WithLabelValues()
	r.Ask("coatcheck_lock_held", KindGauge,
		"Locks that this process has granted and that were not given back through it, while their leases last as far as it knows.", nil,
		func(tell Tell) { tell(float64(s.holds.count(time.Now()))) })
}

// RequestBegan notes that a request has come.
func (s *Service) RequestBegan() { s.inFlight.Inc() }

// RequestEnded notes what became of it. The route is its pattern, "" for none, and the method one
// that HTTP knows, else other. A negative duration, of an endless answer, is not observed.
func (s *Service) RequestEnded(route, method string, status int, took time.Duration) {
	defer s.inFlight.Dec() // last, so that with none under way all are counted
	route = cmp.Or(route, "-")
	s.requests.WithLabelValues(route, method, strconv.Itoa(status)).Inc()
	if took >= 0 {
		s.took.WithLabelValues(route).Observe(took.Seconds())
	}
}

// ExpectProblems makes the series of problems appear, so that rates over them begin at zero.
func (s *Service) ExpectProblems(codes ...string) {
	s.codes = codes
	begin(s.problems, codes...)
}

// Totals are some of the metrics as numbers, since the process began.
type Totals struct {
	Values   int64 // of counters that were handed out
	IDs      map[string]int64
	Locks    int64            // that were granted
	Allowed  int64            // requests that rate limits let through
	Problems map[string]int64 // by code, of those that are expected
}

// Totals returns what was counted so far.
func (s *Service) Totals() Totals {
	totals := Totals{Values: totalOf(s.values), IDs: map[string]int64{}, Locks: totalOf(s.lockRequests.WithLabelValues(Granted)),
		Allowed: totalOf(s.limitRequests.WithLabelValues(Allowed)), Problems: map[string]int64{}}
	for _, kind := range idKinds {
		totals.IDs[kind] = totalOf(s.ids.WithLabelValues(kind))
	}
	for _, code := range s.codes {
		totals.Problems[code] = totalOf(s.problems.WithLabelValues(code))
	}
	return totals
}

func totalOf(counter prometheus.Counter) int64 {
	var told dto.Metric
	_ = counter.Write(&told) // a counter of our own does not fail
	return int64(told.GetCounter().GetValue())
}

// Problem notes what a client was told. The code is one of ours.
func (s *Service) Problem(code string) { s.problems.WithLabelValues(code).Inc() }

// Incremented notes a request that got values of a counter.
func (s *Service) Incremented(values int64) {
	s.increments.Inc()
	s.values.Add(float64(values))
}

// IDs notes how many ids of a kind were handed out.
func (s *Service) IDs(kind string, n int) { s.ids.WithLabelValues(kind).Add(float64(n)) }

// Fetched notes that a range of ids was fetched, or was not.
func (s *Service) Fetched(took time.Duration, err error) {
	outcome := Done
	if err != nil {
		outcome = Failed
	}
	s.fetches.WithLabelValues(outcome).Observe(took.Seconds())
}

// LimitAsked notes what became of a request to a rate limit.
func (s *Service) LimitAsked(cost int, outcome string) {
	switch {
	case cost >= 0:
		s.limitRequests.WithLabelValues(outcome).Inc()
	case outcome == Allowed:
		s.limitReturned.Add(float64(-cost))
	}
}

// LockAsked notes what became of a request for a lock.
func (s *Service) LockAsked(outcome string) { s.lockRequests.WithLabelValues(outcome).Inc() }

// LockGranted notes that a lease has begun. The token is not kept.
func (s *Service) LockGranted(token string, ttl time.Duration) { s.holds.begin(token, time.Now(), ttl) }

// LockUndone notes that a lock was granted, and that its client will never hear of it.
func (s *Service) LockUndone(token string) {
	s.LockAsked(Undone)
	s.holds.drop(token)
}

// LockRenewed notes what became of a renewal.
func (s *Service) LockRenewed(token string, ttl time.Duration, outcome string) {
	s.lockRenewals.WithLabelValues(outcome).Inc()
	switch outcome {
	case Done:
		s.holds.extend(token, time.Now(), ttl)
	case Gone:
		s.holds.drop(token)
	}
}

// LockReleased notes what became of a release.
func (s *Service) LockReleased(token, outcome string) {
	s.lockReleases.WithLabelValues(outcome).Inc()
	switch outcome {
	case Done:
		s.holds.end(token, time.Now())
	case Gone:
		s.holds.drop(token)
	}
}

// LockBroken notes that a lock was taken by force.
func (s *Service) LockBroken() { s.lockBreaks.Inc() }
