package idempotency

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
)

// silentTokens are tokens whose store has gone away, with a log to read.
func silentTokens(t *testing.T) (*Tokens, *strings.Builder) {
	t.Helper()
	var log strings.Builder
	return newTokensWith(t, closedStore(t), Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}), &log
}

func TestClaimsTakeNoRoomFromAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tokens, _ := silentTokens(t)
		tokens.claims.limit = 10 * jobSize
		for i := range 1000 {
			tokens.giveBack(Key{Scope: "r", ID: fmt.Sprint("claim", i)}.named(), "owner", ClaimOptions{}.withDefaults())
		}
		for i := range 2000 {
			tokens.completeLater(t.Context(), Key{Scope: "r", ID: fmt.Sprint("answer", i)}.named(), "owner", Answer{Status: 200, Body: []byte("paid")}, &Attempt{})
		}
		answers, claims := tokens.Backlogs()
		expect.Equal(t, "answers that wait", answers.Operations, 2000)
		expect.Equal(t, "answers that were dropped", answers.Dropped, 0)
		if claims.Operations == 0 || claims.Bytes > 10*jobSize || claims.Dropped != int64(1000-claims.Operations) {
			t.Errorf("1000 claims with room for less than 10: got %+v, want some to wait, and all others counted", claims)
		}
	})
}

func TestAnswersWithoutRoomAreRecordedWithoutTheirBodies(t *testing.T) {
	tokens := embeddedTokens(t)
	tokens.answers.limit = 4 * jobSize
	key := issue(t, tokens, "")
	grant := claim(t, tokens, key, ClaimOptions{Fingerprint: "f", Lease: time.Hour})
	tokens.completeLater(t.Context(), key, grant.LeaseToken, Answer{Status: 201, Body: make([]byte, 4*jobSize)}, &Attempt{})
	expect.Eventually(t, "it is recorded", func() bool {
		outcome, err := tokens.Claim(t.Context(), key, ClaimOptions{Fingerprint: "f"})
		return err == nil && outcome.Answer.Status == 201 && outcome.Answer.NotKept
	})
}

func TestWhatIsDroppedIsCountedAndLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tokens, log := silentTokens(t)
		key := Key{Scope: "r", ID: "k"}.named()
		// until another attempt can take it over
		tokens.giveBack(key, "owner", ClaimOptions{Policy: PolicyTakeover, Lease: time.Second})
		tokens.completeLater(t.Context(), key, "owner", Answer{Status: 200}, &Attempt{})
		time.Sleep(time.Hour)
		tokens.completeLater(t.Context(), key, "owner", Answer{Status: 200}, &Attempt{})
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		expect.Error(t, "Close with an answer that is not recorded", tokens.Close(ended), context.Canceled)
		tokens.completeLater(t.Context(), key, "owner", Answer{Status: 200}, &Attempt{})
		answers, claims := tokens.Backlogs()
		expect.Equal(t, "answers", answers, Backlog{Kind: "answer", Dropped: 3})
		expect.Equal(t, "claims", claims, Backlog{Kind: "claim", Dropped: 1})
		expect.Contains(t, "the log", log.String(), "an answer is not recorded", "a claim that nothing was started for is not given back")
	})
}

// What is lost without a word is lost twice: a program that sets no logger hears of it by its own.
func TestWithoutALoggerTheProgramsOwnIsTold(t *testing.T) {
	before, log := slog.Default(), &strings.Builder{}
	t.Cleanup(func() { slog.SetDefault(before) })
	slog.SetDefault(slog.New(slog.NewTextHandler(log, nil)))
	synctest.Test(t, func(t *testing.T) {
		tokens := newTokens(t, closedStore(t))
		tokens.completeLater(t.Context(), Key{Scope: "r", ID: "k"}, "owner", Answer{Status: 200}, &Attempt{})
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		expect.Error(t, "Close with an answer that is not recorded", tokens.Close(ended), context.Canceled)
	})
	expect.Contains(t, "the program's log", log.String(), "an answer is not recorded")
}

// A program closes with the context whose end has stopped it.
func TestCloseRecordsForAWhileAfterItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tokens, _ := silentTokens(t)
		began := time.Now()
		recorded := false
		tokens.answers.add(&job{name: "r", until: began.Add(time.Hour), try: func(context.Context) bool {
			recorded = time.Since(began) > time.Second
			return recorded
		}})
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		expect.NoError(t, "Close with a context that has ended", tokens.Close(ended))
		expect.Equal(t, "the answer is recorded", recorded, true)
	})
}

func TestBacklogTriesOnUntilItIsDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tokens, _ := silentTokens(t)
		tries := 0
		began := time.Now()
		tokens.claims.add(&job{name: "r", until: began.Add(time.Hour), try: func(context.Context) bool { tries++; return tries == 6 }})
		synctest.Wait()
		expect.Equal(t, "whether it is there", tokens.claims.has("r"), true)
		tokens.claims.workers.Wait()
		expect.Equal(t, "how long six tries took", time.Since(began), 100*time.Millisecond+200*time.Millisecond+400*time.Millisecond+800*time.Millisecond+1600*time.Millisecond+2*time.Second)
		expect.Equal(t, "what is left", tokens.claims.show("claim"), Backlog{Kind: "claim"})
		expect.Equal(t, "whether it is there", tokens.claims.has("r"), false)
	})
}

// What clients do that repeat a finished request and hang up.
func TestClaimOfWhatIsAnsweredIsNotGivenBackAgainAndAgain(t *testing.T) {
	storetest.Each(t, func(t *testing.T, store *redisstore.Store) {
		tokens := newTokens(t, store)
		key := issue(t, tokens, "")
		grant := claim(t, tokens, key, ClaimOptions{Fingerprint: "f"})
		expect.Error(t, "Complete", tokens.Complete(t.Context(), key, grant.LeaseToken, Answer{Status: 200}), nil)
		for range 100 {
			tokens.giveBack(key, "somebody else", ClaimOptions{Lease: time.Hour}.withDefaults())
		}
		expect.Eventually(t, "no claim waits", func() bool { _, claims := tokens.Backlogs(); return claims == Backlog{Kind: "claim"} })
		wantState(t, tokens, key, StateCompleted)
	})
}

func TestBusyOfAClaimThatIsGivenBackIsOverSoon(t *testing.T) {
	tokens := embeddedTokens(t)
	key := issue(t, tokens, "")
	claim(t, tokens, key, ClaimOptions{Fingerprint: "f", Lease: time.Hour})
	// which goes on for a while
	tokens.giveBack(key, "somebody else", ClaimOptions{Lease: time.Hour}.withDefaults())
	_, err := tokens.Claim(t.Context(), key, ClaimOptions{Fingerprint: "f"})
	problem, _ := Problem(err)
	expect.Equal(t, "Retry-After of the problem", problem.RetryAfter, time.Second)
}
