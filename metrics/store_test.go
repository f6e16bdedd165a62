package metrics

import (
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/pipeline"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/redisstore/observe"
	"github.com/coatcheck/coatcheck/scripts"
)

// Every word that a script can answer has its series: what a script says in its header is what it
// can.
func TestEveryDecisionOfAScriptIsCounted(t *testing.T) {
	replyLines := regexp.MustCompile(`(?s)\n-- Reply  (.*?)\n-- [A-Z]`)
	word := regexp.MustCompile(`\{'([a-z-]+)'`)
	texts := map[string]*scripts.Script{}
	for _, script := range []*scripts.Script{
		scripts.TokenIssue, scripts.TokenClaim, scripts.TokenComplete, scripts.TokenExtend, scripts.TokenRelease,
		scripts.WorkerAcquire, scripts.WorkerRenew, scripts.WorkerRelease, scripts.CounterOpen, scripts.CounterIncr,
	} {
		texts[script.Name] = script
	}
	for _, decision := range decisions {
		script := texts[decision.script]
		if script == nil {
			t.Errorf("%s: there is no such script, or this test does not know it", decision.script)
			continue
		}
		var says []string
		for _, match := range word.FindAllStringSubmatch(replyLines.FindStringSubmatch(script.Text().Source)[1], -1) {
			if !slices.Contains(says, match[1]) {
				says = append(says, match[1])
			}
		}
		expect.Equal(t, "words that are counted of "+decision.script+", and those in its header", slices.Sorted(slices.Values(decision.words)), slices.Sorted(slices.Values(says)))
	}
}

func TestCallsAreCountedByWhatBecameOfThem(t *testing.T) {
	s := NewStore("v1")
	for _, call := range []observe.Call{
		{Op: "token_claim", N: 1, Word: "in-doubt"},
		{Op: "token_complete", N: 1, Word: "stale"},
		{Op: "worker_renew", N: 1, Word: "lost"},
		{Op: "token_claim", N: 1, Err: &redisstore.Error{Op: "token_claim", Class: redisstore.ErrUnavailable, Cause: redisstore.ErrUnavailable}},
		{Op: "token_claim", N: 1, Err: &redisstore.Error{Op: "token_claim", Class: redisstore.ErrUnknownOutcome, Cause: &redisstore.ShortfallError{Want: 2, Got: 1}}},
		{Op: observe.OpIncrBy, N: 7},
		{Op: observe.OpIncrBy, N: 1, Err: pipeline.ErrOverflow},
		{Op: "no script", N: 1},
		{Op: "token_claim", N: 1, Word: "a word of another version"},
	} {
		s.callEnded(t.Context(), call)
	}
	s.batchEnded(observe.Batch{Calls: 8, Took: time.Millisecond})
	s.incarnationChanged()
	text := scraped(s.Registry)
	for _, want := range []string{
		`coatcheck_redis_calls_total{outcome="ok",script="token_claim"} 2`, `coatcheck_redis_calls_total{outcome="lost",script="token_complete"} 1`,
		`coatcheck_redis_calls_total{outcome="lost",script="worker_renew"} 1`, `coatcheck_redis_calls_total{outcome="unavailable",script="token_claim"} 1`,
		`coatcheck_redis_calls_total{outcome="unknown",script="token_claim"} 1`, `coatcheck_redis_calls_total{outcome="ok",script="incrby"} 7`,
		`coatcheck_redis_calls_total{outcome="refused",script="incrby"} 1`, `coatcheck_token_claims_total{outcome="in_doubt"} 1`,
		`coatcheck_token_claims_total{outcome="failed"} 2`, `coatcheck_token_completions_total{outcome="stale"} 1`, `coatcheck_redis_wait_shortfalls_total 1`,
		`coatcheck_redis_pipeline_calls_sum 8`, `coatcheck_redis_pipeline_calls_count 1`, `coatcheck_redis_incarnation_changes_total{seen_by="call"} 1`,
		`coatcheck_redis_call_duration_seconds_count{script="incrby"} 2`,
	} {
		expect.Contains(t, "a scrape", text, want+"\n")
	}
	if strings.Contains(text, "no script") || strings.Contains(text, "another version") {
		t.Errorf("a script or a word that is not known is a label, want neither:\n%s", text)
	}
}

func scraped(r *Registry) string {
	recorder := httptest.NewRecorder()
	request := httptest.NewRequest(http.MethodGet, "/metrics", nil)
	request.Header.Set("Accept", "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited")
	r.Handler().ServeHTTP(recorder, request)
	if recorder.Header().Get("Content-Type") != "text/plain; version=0.0.4; charset=utf-8; escaping=underscores" {
		return recorder.Header().Get("Content-Type")
	}
	return recorder.Body.String()
}

// A call costs nothing that the collector has to fetch.
func TestAnObservedCallAllocatesNothing(t *testing.T) {
	s := NewStore("v1")
	call := observe.Call{Op: "token_claim", N: 1, Word: "granted", Took: time.Millisecond}
	s.callEnded(t.Context(), call) // makes its histogram
	if n := testing.AllocsPerRun(100, func() {
		s.callEnded(t.Context(), call)
		s.batchEnded(observe.Batch{Calls: 1, Took: time.Millisecond})
	}); n > 0 {
		t.Errorf("observing a call and a batch: got %v allocations, want 0", n)
	}
}
