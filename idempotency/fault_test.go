package idempotency

import (
	"context"
	"io"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/redisstore/observe"
	"github.com/coatcheck/coatcheck/scripts"
)

// onRedis returns a private redis-server and the tokens on it, with a timeout that detects a hung
// server soon. The tests that wait for it run in parallel.
func onRedis(t *testing.T) (*redistest.Server, *Tokens) {
	t.Helper()
	t.Parallel()
	server := redistest.Start(t)
	return server, newTokens(t, storetest.Open(t, impatient(server.URL())))
}

func impatient(url string) redisstore.Config {
	return redisstore.Config{URL: url, Timeout: 2 * time.Second, AckTimeout: 100 * time.Millisecond}
}

func TestNothingRunsWhenRedisIsDown(t *testing.T) {
	server, tokens := onRedis(t)
	h := &handler{}
	guarded := tokens.Middleware(Route{})(h)
	server.Kill()
	w := post(guarded, "pay", "Idempotency-Key: k")
	wantCode(t, "a request while Redis is down", w, api.StoreUnavailable)
	expect.Equal(t, "Retry-After is there", w.Header().Get("Retry-After") != "", true)
	server.Restart()
	expect.Eventually(t, "the same request runs", func() bool { return post(guarded, "pay", "Idempotency-Key: k").Code == 201 })
	h.wantRuns(t, 1)
}

// The problem says that Redis is not available, and the log why, such as a wrong password.
func TestCauseOfAFailureIsInTheLog(t *testing.T) {
	tokens, log := silentTokens(t)
	w := post(tokens.Middleware(Route{Name: "r"})(&handler{}), "pay", "Idempotency-Key: k")
	wantCode(t, "a request to a store that is closed", w, api.StoreUnavailable)
	expect.Contains(t, "the log", log.String(), "code=store-unavailable", redisstore.ErrClosed.Error())
}

func TestClaimOfUnknownOutcomeRunsNothingAndIsGivenBack(t *testing.T) {
	claimOfAHungRedisIsGivenBack(t, time.Hour, 0)
}

// Under hold the token would be in doubt for a day.
func TestClaimThatAHungRedisRunsAfterTheLeaseIsGivenBack(t *testing.T) {
	claimOfAHungRedisIsGivenBack(t, MinLease, 3*MinLease)
}

// claimOfAHungRedisIsGivenBack has Redis run a claim after its caller has given up, and so much
// later.
func claimOfAHungRedisIsGivenBack(t *testing.T, lease, later time.Duration) {
	t.Helper()
	server, tokens := onRedis(t)
	h := &handler{}
	guarded := tokens.Middleware(Route{Lease: lease})(h)
	post(guarded, "warm up", "Idempotency-Key: other") // so that the claim has a connection
	server.Pause()
	wantCode(t, "a request while Redis hangs", post(guarded, "pay", "Idempotency-Key: k"), api.OutcomeUnknown)
	time.Sleep(later)
	server.Resume() // Redis now executes the abandoned claim
	expect.Eventually(t, "the claim is given back and the repeat runs", func() bool { return post(guarded, "pay", "Idempotency-Key: k").Code == 201 })
	h.wantRuns(t, 2) // the warm-up included
}

func TestAnswerIsSentAndRecordedLaterWhenRedisHangsAtTheEnd(t *testing.T) {
	server, tokens := onRedis(t)
	h := &handler{serve: func(w http.ResponseWriter, _ *http.Request) {
		server.Pause()
		_, _ = io.WriteString(w, "paid")
	}}
	guarded := tokens.Middleware(Route{Name: "r"})(h)
	expect.Equal(t, "the first request", statusAndBody(post(guarded, "pay", "Idempotency-Key: k")), "200 paid")
	server.Resume()
	expect.Eventually(t, "the answer is recorded", func() bool {
		status, err := tokens.Status(t.Context(), Key{Scope: "r", ID: "k"})
		return err == nil && status.State == StateCompleted
	})
	expect.Equal(t, "the request again", statusAndBody(post(guarded, "pay", "Idempotency-Key: k")), "200 paid")
	h.wantRuns(t, 1)
}

func TestDoubtAboutAnAnswerThatIsNotRecordedYetStays(t *testing.T) {
	server, tokens := onRedis(t)
	h := &handler{serve: func(w http.ResponseWriter, r *http.Request) {
		server.Pause()
		_, _ = w.Write(make([]byte, 200)) // over the limit, and Redis does not record that
		server.Resume()
		attempt, _ := FromContext(r.Context())
		attempt.Abandon()
	}}
	post(tokens.Middleware(Route{Name: "r", MaxAnswer: 100, Lease: time.Hour})(h), "pay", "Idempotency-Key: k")
	expect.Eventually(t, "nothing waits to be recorded", func() bool { answers, _ := tokens.Backlogs(); return answers.Operations == 0 })
	var found Operation
	expect.Eventually(t, "the token is found", func() (ok bool) {
		var err error
		found, err = tokens.Status(t.Context(), Key{Scope: "r", ID: "k"})
		return err == nil
	})
	expect.Equal(t, "state of the token", found.State, StateInDoubt)
}

func TestCloseWaitsForAnswersThatAreNotRecordedYet(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	store := storetest.Open(t, impatient(server.URL()))
	tokens := New(store, Config{})
	h := &handler{serve: func(http.ResponseWriter, *http.Request) { server.Pause() }}
	post(tokens.Middleware(Route{Name: "r"})(h), "pay", "Idempotency-Key: k")

	closed := make(chan error)
	go func() { closed <- tokens.Close(context.Background()) }()
	select {
	case err := <-closed:
		t.Fatalf("Close returned error %v while an answer was not recorded, want it to wait", err)
	case <-time.After(200 * time.Millisecond):
	}
	server.Resume()
	expect.Error(t, "Close", <-closed, nil)
	again := newTokens(t, store)
	// the first read may meet a connection that the pause broke
	expect.Eventually(t, "the answer is found recorded", func() bool {
		status, err := again.Status(t.Context(), Key{Scope: "r", ID: "k"})
		return err == nil && status.State == StateCompleted
	})
}

func TestLostRecordEndsTheHandlerAndItsAnswerIsStillSent(t *testing.T) {
	server, tokens := onRedis(t)
	h := &handler{serve: func(w http.ResponseWriter, r *http.Request) {
		expect.Error(t, "FLUSHALL", server.Client().FlushAll(context.Background()).Err(), nil)
		<-r.Context().Done()
		_, _ = io.WriteString(w, "it happened")
	}}
	w := post(tokens.Middleware(Route{Lease: MinLease})(h), "pay", "Idempotency-Key: k")
	expect.Equal(t, "a request whose record is lost", statusAndBody(w), "200 it happened")
}

// lonely returns tokens on a Redis without replicas.
func lonely(t *testing.T) *Tokens {
	t.Helper()
	space := redistest.Shared(t)
	return newTokens(t, storetest.Open(t, redisstore.Config{URL: space.URL, Prefix: space.Prefix, Timeout: time.Minute, AckTimeout: 50 * time.Millisecond}))
}

func TestTooFewReplicasMeansThatNothingRuns(t *testing.T) {
	tokens := lonely(t)
	h := &handler{}
	w := post(tokens.Middleware(Route{Ack: 1})(h), "pay", "Idempotency-Key: k")
	wantCode(t, "a request that no replica confirms", w, api.OutcomeUnknown)
	h.wantRuns(t, 0)
	wantState(t, tokens, Key{Scope: "POST /pay", ID: "k"}, forgotten) // at once
	_, claims := tokens.Backlogs()
	expect.Equal(t, "claims that wait to be given back", claims, Backlog{Kind: "claim"})
	_, err := tokens.Claim(t.Context(), Key{Scope: "r", ID: "k"}, ClaimOptions{Fingerprint: "f", Ack: 1})
	expect.Error(t, "Claim that no replica confirms", err, redisstore.ErrUnknownOutcome)
	wantState(t, tokens, Key{Scope: "r", ID: "k"}, forgotten)
}

func TestAnswersThatGrantNothingNeedNoReplicas(t *testing.T) {
	tokens := lonely(t)
	h := &handler{}
	free := tokens.Middleware(Route{Name: "r"})(h)
	guarded := tokens.Middleware(Route{Name: "r", Ack: 1})(h)
	post(free, "pay", "Idempotency-Key: done")
	claim(t, tokens, Key{Scope: "r", ID: "busy"}, ClaimOptions{Fingerprint: "f", Lease: time.Hour})
	doubtful := Key{Scope: "r", ID: "doubtful"}
	claim(t, tokens, doubtful, ClaimOptions{Fingerprint: "f"})
	lapse(t, tokens, tokens.keys(doubtful)[0])

	replay := post(guarded, "pay", "Idempotency-Key: done")
	wantStatus(t, "the recorded answer", replay, 201)
	wantReplayed(t, "the recorded answer", replay, true)
	wantCode(t, "another payload", post(guarded, "pay more", "Idempotency-Key: done"), api.PayloadMismatch)
	wantCode(t, "a token that is not known", post(guarded, "pay", "Idempotency-Token: never"), api.TokenUnknown)
	for key, want := range map[string]error{"busy": ErrInProgress, "doubtful": ErrInDoubt} {
		_, err := tokens.Claim(t.Context(), Key{Scope: "r", ID: key}, ClaimOptions{Fingerprint: "f", Ack: 1})
		expect.Error(t, "Claim of what is "+key, err, want)
	}
	h.wantRuns(t, 1)
}

// pausing pauses a server when the first script of a name is about to be sent.
type pausing struct {
	op     string
	server *redistest.Server
	once   *sync.Once
}

func (p pausing) CallStarted(ctx context.Context, op string) context.Context {
	if op == p.op {
		p.once.Do(p.server.Pause)
	}
	return ctx
}

// A claim that too few replicas have confirmed is given back. Where the master alone hears of that
// and is then replaced, the next master has the claim: it is given back there, too.
func TestClaimThatIsGivenBackAtAMasterThatIsReplacedIsGivenBackAtTheNext(t *testing.T) {
	t.Parallel()
	set := redistest.StartSentinel(t, 2)
	master, silent, next := set.Master(), set.Replicas()[0], set.Replicas()[1]
	config := impatient(set.URL())
	config.Ack = 2
	config.Observers = []observe.Observer{{CallStarted: pausing{scripts.TokenRelease.Name, next, &sync.Once{}}.CallStarted}}
	tokens := newTokens(t, storetest.Open(t, config))
	h := &handler{}
	guarded := tokens.Middleware(Route{})(h)
	wantStatus(t, "a request before", post(guarded, "pay", "Idempotency-Key: other"), 201)

	silent.Pause()
	wantCode(t, "a request that one of two replicas confirms", post(guarded, "pay", "Idempotency-Key: k"), api.OutcomeUnknown)
	master.Kill()
	silent.Kill()
	next.Resume()
	set.WaitForMaster(master)
	master.Restart()
	silent.Restart()
	expect.Eventually(t, "the claim is given back and the repeat runs", func() bool { return post(guarded, "pay", "Idempotency-Key: k").Code == 201 })
	h.wantRuns(t, 2)
}
