package idempotency

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
)

// questioned notes which operations a resolver is asked about.
type questioned struct {
	mu    sync.Mutex
	names map[string]int
}

func (q *questioned) resolve(_ context.Context, o Operation) (Resolution, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.names == nil {
		q.names = map[string]int{}
	}
	q.names[o.Name]++
	return Resolution{Decision: DecisionNotBegun}, nil
}

// looked looks at the whole list, waits until no question is under way, and returns how many
// operations the resolver was asked about.
func (q *questioned) looked(t *testing.T, tokens *Tokens) int {
	t.Helper()
	for cursor := ""; ; {
		next, err := tokens.asker.look(cursor)
		expect.NoError(t, "a look at the list", err)
		if cursor = next; cursor == "" {
			break
		}
	}
	expect.Eventually(t, "all questions have ended", func() bool { return tokens.asker.open() == 0 })
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.names)
}

// open is how many questions wait or are under way.
func (a *asker) open() (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, of := range a.lanes {
		n += len(of.waiting)
	}
	return n
}

// A resolver that was asked about another one's operation would say that it had not begun, and the
// key would run again.
func TestResolverIsAskedAboutItsOwnOperationsAlone(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 200)
	for name, row := range map[string]struct {
		scope, route string // of the operation
		with         bool   // it was claimed with a resolver
		asks         string // the route whose resolver is asked
		is           bool   // it is asked
	}{
		"its own":                              {"POST /pay", "POST /pay", true, "POST /pay", true},
		"another route's":                      {"POST /pay", "POST /pay", true, "POST /refund", false},
		"of a scope that is named like it":     {"POST /pay", "", false, "POST /pay", false},
		"whose name looks like it on the list": {long + "a", long + "a", true, long + "b", false},
		"without a scope":                      {"", "", true, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tokens, other, asked := embeddedTokens(t), &questioned{}, &questioned{}
			with := other.resolve
			if !row.with {
				with = nil
			}
			operation := undecided(t, tokens, row.scope, row.route, "k", with)
			tokens.asker.answersFor(row.asks, asked.resolve)
			expect.Equal(t, "operations that it is asked about", asked.looked(t, tokens), map[bool]int{true: 1}[row.is])
			found, err := tokens.Operation(t.Context(), operation)
			expect.NoError(t, "Operation", err)
			expect.Equal(t, "whether it is still in doubt", found.State == StateInDoubt, !row.is)
		})
	}
}

func TestRouteThatHasNoResolverAnyMoreIsNotAskedFor(t *testing.T) {
	t.Parallel()
	tokens, asked := embeddedTokens(t), &questioned{}
	tokens.Middleware(Route{Name: "POST /pay", Resolve: asked.resolve})
	tokens.Middleware(Route{Name: "POST /pay"})
	undecided(t, tokens, "POST /pay", "POST /pay", "k", asked.resolve)
	expect.Equal(t, "operations that it is asked about", asked.looked(t, tokens), 0)
}

// hanging is a resolver that neither answers nor ends with its context, until the test ends.
func hanging(t *testing.T) (resolve Resolver, isAsked <-chan struct{}) {
	ended, asked := make(chan struct{}), make(chan struct{}, 1000)
	t.Cleanup(func() { close(ended) })
	return func(context.Context, Operation) (Resolution, error) {
		asked <- struct{}{}
		<-ended
		return Resolution{}, errAway
	}, asked
}

func TestResolverThatHangsDelaysNoOtherRoute(t *testing.T) {
	t.Parallel()
	tokens, asked := embeddedTokens(t), &questioned{}
	hangs, isAsked := hanging(t)
	for n := range 3 * questions {
		undecided(t, tokens, "hangs", "hangs", strconv.Itoa(n), hangs)
	}
	tokens.asker.answersFor("hangs", hangs)
	_, err := tokens.asker.look("")
	expect.NoError(t, "a look at the list", err)
	for range questions {
		<-isAsked
	}
	undecided(t, tokens, "POST /pay", "POST /pay", "k", asked.resolve)
	tokens.asker.answersFor("POST /pay", asked.resolve)
	_, err = tokens.asker.look("")
	expect.NoError(t, "a look at the list", err)
	expect.Eventually(t, "the other route's doubt is over", func() bool {
		found, err := tokens.Status(t.Context(), Key{Scope: "POST /pay", ID: "k"})
		return err != nil || found.State != StateInDoubt
	})
}

func TestCloseDoesNotWaitForAResolverThatHangs(t *testing.T) {
	t.Parallel()
	tokens := New(storetest.Open(t, redisstore.Config{}), Config{})
	hangs, isAsked := hanging(t)
	undecided(t, tokens, "hangs", "hangs", "k", hangs)
	tokens.asker.answersFor("hangs", hangs)
	_, err := tokens.asker.look("")
	expect.NoError(t, "a look at the list", err)
	<-isAsked
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	expect.Error(t, "Close", tokens.Close(ctx), context.Canceled)
}

// A look costs the same however long the list is.
func TestLookReadsOnePageOfTheList(t *testing.T) {
	t.Parallel()
	tokens, asked := embeddedTokens(t), &questioned{}
	for n := range maxScanned + 1 {
		undecided(t, tokens, "POST /pay", "POST /pay", strconv.Itoa(n), nil)
	}
	next, err := tokens.asker.look("")
	expect.NoError(t, "the first look", err)
	expect.Equal(t, "whether there is another page", next != "", true)
	next, err = tokens.asker.look(next)
	expect.NoError(t, "the second look", err)
	expect.Equal(t, "the page after the last", next, "")
	expect.Equal(t, "operations that are asked about", asked.looked(t, tokens), 0)
}

// A record that a newer version has written fails a page for people, and holds no question up.
func TestRecordOfANewerVersionHoldsNoQuestionUp(t *testing.T) {
	t.Parallel()
	redis, asked := redistest.Start(t), &questioned{}
	tokens := newTokens(t, storetest.Open(t, redisstore.Config{URL: redis.URL()}))
	newer := undecided(t, tokens, "POST /pay", "POST /pay", "newer", nil)
	undecided(t, tokens, "POST /pay", "POST /pay", "k", asked.resolve)
	at := tokens.keysOf(newer)[0]
	setWord(t, tokens, at, "state", "@2:9.9.9 claimed")
	_, _, err := tokens.inDoubt(t.Context(), doubtPage{})
	expect.Error(t, "a page for people", err, redisstore.ErrNewer)
	tokens.asker.answersFor("POST /pay", asked.resolve)
	expect.Equal(t, "operations that are asked about", asked.looked(t, tokens), 1)
}

// Do does not say that the operation is in progress while its own resolver is being asked.
func TestDoWaitsForAQuestionThatIsUnderWay(t *testing.T) {
	t.Parallel()
	tokens, ledger := embeddedTokens(t), newBook()
	var begun sync.Once
	isAsked, mayAnswer := make(chan struct{}), make(chan struct{})
	options := ClaimOptions{Resolve: func(ctx context.Context, o Operation) (Resolution, error) {
		begun.Do(func() { close(isAsked) })
		<-mayAnswer
		return ledger.resolve(ctx, o)
	}}
	key := Key{ID: "job"}
	_, err := tokens.Do(t.Context(), key, options, func(ctx context.Context, attempt *Attempt) ([]byte, error) {
		ledger.enter(attempt)
		return nil, errProvider
	})
	expect.Error(t, "the error of the first Do's function", ofWork(t, err), errProvider)
	<-isAsked
	_, err = tokens.Claim(t.Context(), key, ClaimOptions{Fingerprint: "do"})
	expect.Equal(t, "what a claim meets", [2]bool{errors.Is(err, ErrInProgress), errors.Is(err, errInQuestion)}, [2]bool{true, true})
	time.AfterFunc(100*time.Millisecond, func() { close(mayAnswer) })
	result, err := tokens.Do(t.Context(), key, options, func(context.Context, *Attempt) ([]byte, error) {
		t.Error("the work ran twice")
		return nil, nil
	})
	expect.NoError(t, "the second Do", err)
	expect.Equal(t, "its result", result, Result{Value: []byte("paid"), Replayed: true})
}
