//go:build check && linux

package resolvers

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/coatchecktest"
	"github.com/coatcheck/coatcheck/idempotency"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// The judge finds each fault that is put into a history, and nothing in one without.
func TestJudgeFindsWhatIsPutIn(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		change func(b *book, payments map[string][]string)
		want   [3]int // payments twice, clients without an answer, wrong answers
	}{
		"nothing":               {func(*book, map[string][]string) {}, [3]int{}},
		"two payments":          {func(_ *book, payments map[string][]string) { payments["k"] = []string{"1", "2"} }, [3]int{1, 0, 2}},
		"no payment":            {func(_ *book, payments map[string][]string) { delete(payments, "k") }, [3]int{0, 0, 2}},
		"another one's payment": {func(b *book, _ map[string][]string) { b.answers[1].text = "paid l 1" }, [3]int{0, 0, 1}},
		"another payment":       {func(b *book, _ map[string][]string) { b.answers[1].text = "paid k 2" }, [3]int{0, 0, 1}},
		"a client without":      {func(b *book, _ map[string][]string) { b.answers[1].text = "" }, [3]int{0, 1, 0}},
	} {
		b := newBook()
		b.answers = []answer{{key: "k", text: "paid k 1"}, {key: "k", nth: 1, text: "paid k 1"}}
		payments := map[string][]string{"k": {"1"}, "asked once": {"3"}}
		row.change(&b, payments)
		f := b.judge(payments, true)
		expect.Equal(t, name, [3]int{f.twice, f.unanswered, f.wrong}, row.want)
	}
}

// resolver is the recipe's.
func (b *bank) resolver(ctx context.Context, about idempotency.Operation) (said idempotency.Resolution, err error) {
	answer, err := b.close(ctx, about.Name, about.Fence)
	switch {
	case err != nil:
		return said, err
	case !answer.Valid:
		return idempotency.Resolution{Decision: idempotency.DecisionNotBegun}, nil
	}
	return idempotency.Resolution{Decision: idempotency.DecisionHappened, Answer: idempotency.Answer{Status: http.StatusOK, Body: []byte(answer.String)}}, nil
}

// isDeadlock reports whether a transaction was rolled back for another one's sake, by MySQL's error
// 1213. It has had no effect, and runs again.
func isDeadlock(err error) bool { return err != nil && strings.Contains(err.Error(), "Error 1213") }

// resolverCase is the recipe for the check of resolvers.
func (b *bank) resolverCase() coatchecktest.ResolverCase {
	races := 1000
	if *keys <= shortKeys {
		races = 50
	}
	return coatchecktest.ResolverCase{
		Races: races,
		Attempt: func(ctx context.Context, operation string, fence int64, begun func()) error {
			begun()
			for {
				_, err := b.pay(ctx, operation, fence, operation, false)
				if !isDeadlock(err) {
					return err
				}
			}
		},
		Resolve: func(ctx context.Context, about idempotency.Operation) (idempotency.Resolution, error) {
			for {
				said, err := b.resolver(ctx, about)
				if !isDeadlock(err) {
					return said, err
				}
			}
		},
		Effects: func(ctx context.Context, operation string) (n int, err error) {
			err = b.db.QueryRowContext(ctx, "SELECT count(*) FROM payments WHERE client_key = '"+operation+"'").Scan(&n)
			return n, err
		},
	}
}
