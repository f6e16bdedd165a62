package metrics

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/coatcheck/coatcheck/internal/doubt"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/redisstore/observe"
	"github.com/coatcheck/coatcheck/scripts"
)

// Outcome is what became of a call to the store.
type Outcome string

// The outcomes.
const (
	OutcomeOK      Outcome = "ok"      // it was answered, whatever the answer is
	OutcomeLost    Outcome = "lost"    // it was answered: what the caller held is no longer theirs
	OutcomeRefused Outcome = "refused" // nothing was done: what is stored there does not allow it
	// OutcomeUnavailable means that nothing was done: the store cannot be reached, or takes no
	// writes.
	OutcomeUnavailable Outcome = "unavailable"
	OutcomeUnknown     Outcome = "unknown" // it may have been done
)

var outcomes = []Outcome{OutcomeOK, OutcomeLost, OutcomeRefused, OutcomeUnavailable, OutcomeUnknown}

// failed stands in the place of what a script decides for a call that was not answered.
const failed = "failed"

// losses are the scripts' answers to a caller that no longer has what it held.
var losses = []string{"lost", "stale", "gone"}

// decisions says which scripts' answers are counted one by one, and what each can answer.
var decisions = []struct {
	script, name, help string
	words              []string
}{
	{
		"token_issue", "coatcheck_token_issues_total", "Tokens that were asked for, by outcome.",
		[]string{"ok", "exists"},
	},
	{
		"token_claim", "coatcheck_token_claims_total",
		"Claims of tokens and keys, by what Redis decided: granted (the operation begins), replay (its answer is there), busy (it " +
			"is running), in_doubt (it has ended without an answer), " +
			"mismatch (it was another request), unknown. A request that waits for another one claims again at each look.",
		[]string{"granted", "replay", "busy", "resolving", "in-doubt", "mismatch", "unknown"},
	},
	{
		"token_complete", "coatcheck_token_completions_total", "Answers to be recorded, by outcome; stale: another attempt has the " +
			"claim.",
		[]string{"ok", "already", "stale", "gone"},
	},
	{
		"token_extend", "coatcheck_token_extensions_total",
		"Renewals of claims, by outcome; stale: another attempt has the claim, or its answer is there.",
		[]string{"ok", "stale", "gone"},
	},
	{
		"token_release", "coatcheck_token_releases_total",
		"Claims that were given back, by outcome; forgotten: nothing of it is left; answered: an answer is recorded, and nothing " +
			"was to be given back.",
		[]string{"ok", "forgotten", "answered", "stale", "gone"},
	},
	{
		"worker_acquire", "coatcheck_worker_grants_total",
		"Worker ids that were asked for, by outcome; exhausted: all of the pool are taken; quarantined: its state may have been " +
			"lost; layout: the pool has another one; ended: its layout has no timestamps left; longest: it is used with a longer " +
			"TTL than this process allows.",
		[]string{"granted", "layout", "ended", "longest", "exhausted", "quarantined"},
	},
	{
		"worker_renew", "coatcheck_worker_renewals_total", "Renewals of worker ids' leases, by outcome.",
		[]string{"ok", "lost", "layout", "ended"},
	},
	{
		"worker_release", "coatcheck_worker_releases_total", "Worker ids that were given back, by outcome.",
		[]string{"ok", "lost"},
	},
	{
		"counter_open", "coatcheck_counter_openings_total",
		"Counters, and segments' counters, that were looked at before they were used: at first, and whenever state may have been " +
			"lost. By outcome; hold_off: everything was lost a moment " +
			"ago; behind: it has gone back and is not moved; limit: it is at the end of what the call allows.",
		[]string{"ok", "hold-off", "behind", "limit", "not-an-integer", "overflow"},
	},
	{
		"counter_incr", "coatcheck_counter_repeatable_total",
		"Increments with a request id, a limit or a TTL, by outcome; again: the request was made before and got the same values; " +
			"permanent: a TTL for a counter that has no end.",
		[]string{"ok", "again", "behind", "permanent", "limit", "negative", "not-an-integer", "overflow", "mismatch"},
	},
}

// Store are the metrics of a program that uses a store: a registry, and what follows the store's
// calls by [Store.Observer]. It is safe for concurrent use.
type Store struct {
	*Registry

	calls      map[string]series // by op; it does not change
	shortfalls prometheus.Counter
	changes    *prometheus.CounterVec
	shared     prometheus.Observer
	durations  prometheus.Observer
	waits      lockWaits
	doubts     *doubt.Watch // nil before Show
	rings      *rings       // nil without worker ids
}

// series are those of one op.
type series struct {
	outcomes map[Outcome]prometheus.Counter
	words    map[string]prometheus.Counter // nil = what it decides is not counted
	// makes it when it is needed: most programs use few of the scripts
	took func() prometheus.Observer
}

// NewStore returns the metrics of a program of this version.
func NewStore(version string) *Store {
	r := NewRegistry(version)
	s := &Store{Registry: r, calls: map[string]series{}}
	calls := r.Counter("coatcheck_redis_calls_total",
		"Scripts and increments that were sent to Redis, or were to be, by outcome: ok (answered), lost (answered: no longer the "+
			"caller's), refused (what is stored there does not allow "+
			"it), unavailable (nothing was done), unknown (it may have been done).", "script", "outcome")
	took := r.Histogram("coatcheck_redis_call_duration_seconds",
		"How long a script took, with the wait for a connection, for the pipeline and for replicas. Increments of different "+
			"counters in one pipeline are one observation.", Quick, "script")
	for _, op := range append(scripts.Names(), scripts.CounterBegin.Name, observe.OpIncrBy) {
		one := series{
			outcomes: map[Outcome]prometheus.Counter{},
			took:     sync.OnceValue(func() prometheus.Observer { return took.WithLabelValues(op) }),
		}
		for _, outcome := range outcomes {
			one.outcomes[outcome] = calls.WithLabelValues(op, string(outcome))
		}
		s.calls[op] = one
	}
	s.decided(r)
	s.flown(r)
	s.locksWaitedFor(r)
	return s
}

func (s *Store) decided(r *Registry) {
	for _, decision := range decisions {
		counts, words := r.Counter(decision.name, decision.help, "outcome"), map[string]prometheus.Counter{}
		for _, word := range append(slices.Clone(decision.words), failed) {
			words[word] = counts.WithLabelValues(label(word))
		}
		one := s.calls[decision.script]
		one.words = words
		s.calls[decision.script] = one
	}
}

// label is a word as labels have it.
func label(word string) string { return strings.ReplaceAll(word, "-", "_") }

func (s *Store) flown(r *Registry) {
	s.shared = r.Histogram("coatcheck_redis_pipeline_calls",
		"Scripts and increments that shared a round trip. Its sum by its count is how many share one on average.",
		prometheus.ExponentialBuckets(1, 2, 11)).WithLabelValues()
	s.durations = r.Histogram("coatcheck_redis_pipeline_duration_seconds",
		"How long round trips took, with the wait for a connection and for replicas.", Quick).WithLabelValues()
	s.shortfalls = r.Counter("coatcheck_redis_wait_shortfalls_total",
		"Writes that fewer replicas confirmed in time than were asked for. Their callers were told that the outcome is unknown.",
	).WithLabelValues()
	s.changes = r.Counter("coatcheck_redis_incarnation_changes_total",
		"Times that Redis was found to be another incarnation: by a call (each failover, restart, first replica and backup, most of "+
			"which lose nothing), or by the marker "+
			"that /readyz looks at (where confirmed writes may be missing: those that nothing proves harmless, and FLUSHALL).", "seen_by")
	begin(s.changes, "call", "marker")
}

// Observer is what a store tells these metrics of, for [redisstore.Config].
func (s *Store) Observer() observe.Observer {
	return observe.Observer{
		CallEnded: s.callEnded, BatchEnded: s.batchEnded, IncarnationChanged: s.incarnationChanged, LockWaits: s.lockWaits,
	}
}

func (s *Store) callEnded(_ context.Context, call observe.Call) {
	op, known := s.calls[call.Op]
	if !known {
		return
	}
	op.outcomes[outcomeOf(call)].Add(float64(call.N))
	op.took().Observe(call.Took.Seconds())
	if _, short := errors.AsType[*redisstore.ShortfallError](call.Err); short {
		s.shortfalls.Add(float64(call.N))
	}
	if op.words == nil {
		return
	}
	word := call.Word
	if call.Err != nil {
		word = failed
	}
	if count := op.words[word]; count != nil {
		count.Add(float64(call.N))
	}
}

func outcomeOf(call observe.Call) Outcome {
	switch err := call.Err; {
	case err == nil && slices.Contains(losses, call.Word):
		return OutcomeLost
	case err == nil:
		return OutcomeOK
	case errors.Is(err, redisstore.ErrUnavailable):
		return OutcomeUnavailable
	case errors.Is(err, redisstore.ErrRefused):
		return OutcomeRefused
	case errors.Is(err, redisstore.ErrLost):
		return OutcomeLost
	}
	return OutcomeUnknown
}

func (s *Store) batchEnded(batch observe.Batch) {
	s.shared.Observe(float64(batch.Calls))
	s.durations.Observe(batch.Took.Seconds())
}

func (s *Store) incarnationChanged() { s.changes.WithLabelValues("call").Inc() }

// MarkerChanged notes that the marker of the incarnation was another, or gone.
func (s *Store) MarkerChanged() { s.changes.WithLabelValues("marker").Inc() }

// showConnections adds what go-redis knows of a store's connections.
func (s *Store) showConnections(store *redisstore.Store) {
	show := func(name string, kind Kind, help string, value func() float64) {
		s.Ask(name, kind, help, nil, func(tell Tell) { tell(value()) })
	}
	show("coatcheck_redis_pool_pending", KindGauge, "Calls that wait for a connection.",
		func() float64 { return float64(store.PoolStats().PendingRequests) })
	show("coatcheck_redis_pool_hits_total", KindCounter, "Times that a connection was free.",
		func() float64 { return float64(store.PoolStats().Hits) })
	show("coatcheck_redis_pool_misses_total", KindCounter, "Times that no connection was free.",
		func() float64 { return float64(store.PoolStats().Misses) })
	show("coatcheck_redis_pool_waits_total", KindCounter,
		"Times that a connection was waited for, since there were as many as there may be.",
		func() float64 { return float64(store.PoolStats().WaitCount) })
	show("coatcheck_redis_pool_wait_seconds_total", KindCounter, "How long connections were waited for, all together.",
		func() float64 { return time.Duration(store.PoolStats().WaitDurationNs).Seconds() })
	show("coatcheck_redis_pool_timeouts_total", KindCounter, "Times that a connection was waited for in vain.",
		func() float64 { return float64(store.PoolStats().Timeouts) })
	show("coatcheck_redis_pool_stale_total", KindCounter, "Connections that were found broken or too old, and ended.",
		func() float64 { return float64(store.PoolStats().StaleConns) })
	s.Ask("coatcheck_redis_pool_connections", KindGauge,
		"Connections to Redis; those that only listen are not among them.", []string{"state"}, func(tell Tell) {
			p := store.PoolStats()
			tell(float64(p.IdleConns), "idle")
			tell(float64(max(int(p.TotalConns)-int(p.IdleConns), 0)), "in_use")
		})
}

// since is how long ago something was, in seconds.
func since(then time.Time) float64 { return time.Since(then).Seconds() }
