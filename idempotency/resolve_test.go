package idempotency

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
)

// book keeps effects under the names of operations, as the table of docs/effects.md does.
type book struct {
	mu      sync.Mutex
	effects map[string]int
	closed  map[string]int64 // the fence that is closed
	asked   atomic.Int64
	away    atomic.Bool
}

func newBook() *book { return &book{effects: map[string]int{}, closed: map[string]int64{}} }

// enter is an attempt's effect; false = the operation is closed for it.
func (b *book) enter(a *Attempt) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if a.Fence <= b.closed[a.Operation] || b.effects[a.Operation] > 0 {
		return false
	}
	b.effects[a.Operation]++
	return true
}

var errAway = errors.New("the book cannot be asked")

// resolve is the book's resolver.
func (b *book) resolve(_ context.Context, o Operation) (Resolution, error) {
	b.asked.Add(1)
	if b.away.Load() {
		return Resolution{}, errAway
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.effects[o.Name] > 0 {
		return Resolution{Decision: DecisionHappened, Answer: Answer{Status: http.StatusCreated, Body: []byte("paid")}}, nil
	}
	b.closed[o.Name] = max(b.closed[o.Name], o.Fence)
	return Resolution{Decision: DecisionNotBegun}, nil
}

func (b *book) wantEffects(t *testing.T, operation string, times int) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	expect.Equal(t, "effects", b.effects[operation], times)
}

func TestDoubtOfARouteWithAResolverEndsByItself(t *testing.T) {
	for name, happens := range map[string]bool{"after its effect": true, "before it": false} {
		t.Run(name, func(t *testing.T) {
			storetest.Each(t, func(t *testing.T, store *redisstore.Store) {
				tokens, ledger := newTokens(t, store), newBook()
				first := &handler{serve: func(w http.ResponseWriter, r *http.Request) {
					attempt := attemptOf(r)
					if attempt.Number > 1 || happens {
						ledger.enter(attempt)
					}
					if attempt.Number == 1 {
						attempt.Abandon()
						w.WriteHeader(http.StatusBadGateway)
						return
					}
					w.WriteHeader(http.StatusCreated)
					_, _ = w.Write([]byte("paid"))
				}}
				guarded := tokens.Middleware(Route{Name: "POST /pay", Resolve: ledger.resolve, MaxWait: time.Minute})(first)
				wantStatus(t, "the first request", post(guarded, "x", "Idempotency-Key: k"), http.StatusBadGateway)
				again := post(guarded, "x", "Idempotency-Key: k", "Prefer: wait=60")
				wantStatus(t, "a repeat that waits", again, http.StatusCreated)
				expect.Equal(t, "its body", again.Body.String(), "paid")
				wantReplayed(t, "the repeat", again, happens)
				ledger.wantEffects(t, Key{Principal: mustPrincipal(t, tokens), Scope: "POST /pay", ID: "k"}.Operation(), 1)
				first.wantRuns(t, map[bool]int64{true: 1, false: 2}[happens])
			})
		})
	}
}

// mustPrincipal is that of requests without a caller.
func mustPrincipal(t *testing.T, tokens *Tokens) string {
	t.Helper()
	request, err := http.NewRequest(http.MethodPost, "/pay", nil)
	expect.NoError(t, "a request", err)
	principal, err := tokens.principal(request)
	expect.NoError(t, "its principal", err)
	return principal
}

// A repeat that does not wait is told when to ask again, and what the resolver does not know stays
// in doubt: it is asked again.
func TestDoubtWhoseResolverIsAwayEndsWhenItIsBack(t *testing.T) {
	t.Parallel()
	tokens, ledger := embeddedTokens(t), newBook()
	ledger.away.Store(true)
	h := &handler{serve: func(_ http.ResponseWriter, r *http.Request) {
		if attemptOf(r).Number == 1 {
			attemptOf(r).Abandon()
		}
	}}
	guarded := tokens.Middleware(Route{Name: "POST /pay", Resolve: ledger.resolve})(h)
	post(guarded, "x", "Idempotency-Key: k")
	expect.Eventually(t, "the resolver is asked in vain, and the doubt is told", func() bool {
		w := post(guarded, "x", "Idempotency-Key: k")
		return codeOf(w) == api.IdempotencyUnknown && w.Header().Get("Retry-After") == "1" && ledger.asked.Load() > 0
	})
	key := Key{Principal: mustPrincipal(t, tokens), Scope: "POST /pay", ID: "k"}
	wantState(t, tokens, key, StateInDoubt)
	ledger.away.Store(false)
	expect.Eventually(t, "the key is free", func() bool { return post(guarded, "x", "Idempotency-Key: k").Code == http.StatusOK })
	expect.Equal(t, "whether it was asked again", ledger.asked.Load() > 1, true)
}

// The process whose attempt is in doubt has died: another one finds it in the list.
func TestDoubtThatNobodyRepeatsEndsToo(t *testing.T) {
	storetest.Each(t, func(t *testing.T, store *redisstore.Store) {
		dead := newTokens(t, store)
		tokens, ledger := newTokens(t, store), newBook()
		key := Key{Scope: "POST /pay", ID: "k"}
		grant := claim(t, dead, key, ClaimOptions{Fingerprint: "f", Route: "POST /pay", Resolve: ledger.resolve})
		expect.NoError(t, "Abandon", dead.Abandon(t.Context(), key, grant.LeaseToken))
		ledger.enter(&Attempt{Operation: key.Operation(), Fence: grant.Fence})
		tokens.Middleware(Route{Name: "POST /pay", Resolve: ledger.resolve})
		expect.Eventually(t, "the operation is completed", func() bool {
			found, err := tokens.Status(t.Context(), key)
			return err == nil && found.State == StateCompleted
		})
		expect.Error(t, "a late answer of the dead one", dead.Complete(t.Context(), key, grant.LeaseToken, Answer{Status: 200}), ErrSuperseded)
	})
}

func TestDoAsksItsResolver(t *testing.T) {
	t.Parallel()
	tokens, ledger := embeddedTokens(t), newBook()
	for number, happens := range []bool{true, false} {
		key := Key{ID: "job " + strconv.Itoa(number)}
		runs := 0
		options := ClaimOptions{Resolve: ledger.resolve}
		work := func(ctx context.Context, attempt *Attempt) ([]byte, error) {
			runs++
			if runs > 1 {
				expect.Equal(t, "whether the effect is taken", ledger.enter(attempt), true)
				return []byte("paid"), nil
			}
			if happens {
				ledger.enter(attempt)
			}
			return nil, errProvider
		}
		_, err := tokens.Do(t.Context(), key, options, work)
		expect.Error(t, "the error of the first Do's function", ofWork(t, err), errProvider)
		result, err := tokens.Do(t.Context(), key, options, work)
		expect.NoError(t, "the second Do", err)
		expect.Equal(t, "its result", result, Result{Value: []byte("paid"), Replayed: happens})
		ledger.wantEffects(t, key.Operation(), 1)
	}
}

// Two processes, attempts that are in doubt before, during and after their effect or end late, and
// repeats: each key has one effect, and every repeat gets its answer.
func TestResolversOfTwoProcessesLeaveOneEffectForEachKey(t *testing.T) {
	storetest.Each(t, func(t *testing.T, store *redisstore.Store) {
		ledger := newBook()
		var doors [2]http.Handler
		var late sync.WaitGroup
		defer late.Wait()
		for i := range doors {
			h := &handler{serve: func(w http.ResponseWriter, r *http.Request) {
				attempt := attemptOf(r)
				how := (int(attempt.Fence) + attempt.Number) % 4
				if attempt.Number > 3 {
					how = 0
				}
				if how == 1 { // it goes on beside what asks about it
					late.Go(func() { ledger.enter(attempt) })
				}
				if how != 2 && how != 1 {
					ledger.enter(attempt)
				}
				if how != 0 {
					attempt.Abandon()
				}
				w.WriteHeader(http.StatusCreated)
				_, _ = w.Write([]byte("paid"))
			}}
			doors[i] = newTokens(t, store).Middleware(Route{Name: "POST /pay", Resolve: ledger.resolve, MaxWait: time.Minute})(h)
		}
		var clients sync.WaitGroup
		for n := range 100 {
			for _, door := range doors {
				clients.Go(func() {
					key := "Idempotency-Key: " + strconv.Itoa(n)
					expect.Eventually(t, "the answer for "+key, func() bool {
						w := post(door, "x", key, "Prefer: wait=60")
						return w.Code == http.StatusCreated && w.Header().Get("Idempotent-Replayed") == "true"
					})
				})
			}
		}
		clients.Wait()
		late.Wait()
		ledger.mu.Lock()
		defer ledger.mu.Unlock()
		expect.Equal(t, "operations with an effect", len(ledger.effects), 100)
		for operation, times := range ledger.effects {
			expect.Equal(t, "effects of "+operation, times, 1)
		}
	})
}

func TestResolverMayNotRefuseOrPanic(t *testing.T) {
	t.Parallel()
	for name, resolver := range map[string]Resolver{
		"refuses": func(context.Context, Operation) (Resolution, error) {
			return Resolution{Decision: DecisionRefused}, nil
		},
		"is mute": func(context.Context, Operation) (Resolution, error) { return Resolution{}, nil },
		"panics":  func(context.Context, Operation) (Resolution, error) { panic("no book") },
		"has no whole answer": func(context.Context, Operation) (Resolution, error) {
			return Resolution{Decision: DecisionHappened, Answer: Answer{Status: 99}}, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			told := make(chan Decision, 100)
			store := storetest.Open(t, redisstore.Config{})
			tokens := newTokensWith(t, store, Config{Resolved: func(_ Operation, how Decision) { told <- how }})
			operation := undecided(t, tokens, "POST /pay", "POST /pay", "k", resolver)
			tokens.Middleware(Route{Name: "POST /pay", Resolve: resolver})
			expect.Equal(t, "what is told of the question", <-told, "")
			found, err := tokens.Operation(t.Context(), operation)
			expect.NoError(t, "Operation", err)
			expect.Equal(t, "state", found.State, StateInDoubt)
		})
	}
}

func TestBeginResolvingIsForOneAtATime(t *testing.T) {
	t.Parallel()
	tokens := embeddedTokens(t)
	operation, grant := abandoned(t, tokens, "k", "POST /pay")
	first, err := tokens.BeginResolving(t.Context(), operation, "", MaxResolving)
	expect.NoError(t, "BeginResolving", err)
	expect.Equal(t, "the fence to close", first.Fence, grant.Fence)
	_, err = tokens.BeginResolving(t.Context(), operation, "", MaxResolving)
	expect.Error(t, "another one", err, ErrResolving)
	expect.Error(t, "another one, as it is told", err, ErrAttemptRunning)
	expect.Equal(t, "whether it has a wait", redisstore.RetryAfter(err) > 0, true)
	_, err = tokens.BeginResolving(t.Context(), operation, first.LeaseToken, MaxResolving)
	expect.NoError(t, "the same again", err)
	expect.Error(t, "an operator", tokens.Settle(t.Context(), operation, Settlement{Decision: DecisionNotBegun}), ErrAttemptRunning)
	other := Settlement{Decision: DecisionNotBegun, LeaseToken: "another-resolver-of-it"}
	expect.Error(t, "another resolver", tokens.Settle(t.Context(), operation, other), ErrSuperseded)
	expect.NoError(t, "the resolver", tokens.Settle(t.Context(), operation, Settlement{Decision: DecisionNotBegun, LeaseToken: first.LeaseToken}))
	expect.Error(t, "its end after that", tokens.EndResolving(t.Context(), operation, first.LeaseToken), ErrNotInDoubt)
	for _, name := range []string{"", "x", Key{ID: "never"}.Operation()} {
		_, err = tokens.BeginResolving(t.Context(), name, "", 0)
		expect.Error(t, "an operation "+name, err, ErrUnknownOperation)
	}
	_, err = tokens.BeginResolving(t.Context(), operation, "orders-service-eu", 0)
	expect.Contains(t, "error of a lease token that people chose", fmt.Sprint(err), "22 characters")
	_, err = tokens.BeginResolving(t.Context(), operation, "", MaxResolving+1)
	expect.Contains(t, "error of a lease that would keep an operator out for long", fmt.Sprint(err), "100ms to 5m0s")
}
