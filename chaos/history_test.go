//go:build check

package chaos

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// answer is what one request came to.
type answer struct {
	operation string
	client    string
	front     string // the process that was asked
	sent, got time.Time
	status    int // 0 = there was no answer
	code      string
	body      string
	replayed  bool
	failure   string // why there was no answer
	excused   bool   // the process that was asked has been killed
}

func (a answer) String() string {
	said := fmt.Sprintf("%d %s", a.status, a.code)
	switch {
	case a.status == 0:
		said = "no answer: " + a.failure
	case a.code == "":
		said += fmt.Sprintf("%q", a.body)
	}
	if a.replayed {
		said += " replayed"
	}
	return fmt.Sprintf("%s–%s  %s asks %s: %s", a.sent.Format("05.000"), a.got.Format("05.000"), a.client, a.front, said)
}

// settled reports whether a client has nothing to ask any more: it has the answer, or the truth
// that there will be none.
func (a answer) settled() bool {
	return a.status != 0 && !slices.Contains([]string{inProgress, superseded, storeUnavailable, outcomeUnknown, upstreamUnavailable}, a.code)
}

// The codes that a guarded request can be told here.
const (
	inProgress          = "idempotency-in-progress"
	inDoubt             = "idempotency-outcome-unknown"
	superseded          = "idempotency-superseded"
	tokenUnknown        = "idempotency-token-unknown"
	storeUnavailable    = "store-unavailable"
	outcomeUnknown      = "outcome-unknown"
	upstreamUnavailable = "upstream-unavailable"
)

// statusOf is every code of the interface with its status, as API.md's table has them.
// upstream-unavailable is the gateway's own.
var statusOf = map[string]int{
	"invalid-request": 400, "invalid-name": 400, "idempotency-key-missing": 400, "idempotency-key-malformed": 400,
	"unauthorized": 401, "forbidden": 403, "not-found": 404, "method-not-allowed": 405,
	inProgress: 409, inDoubt: 409, superseded: 409, "idempotency-payload-mismatch": 422, tokenUnknown: 410,
	"not-an-integer": 409, "counter-overflow": 409, "lock-held": 409, "layout-mismatch": 409, "lease-lost": 410,
	"pool-exhausted": 503, "payload-too-large": 413, "unsupported-encoding": 415, "pool-quarantined": 503, "too-many-requests": 429,
	storeUnavailable: 503, outcomeUnknown: 503, upstreamUnavailable: 503,
}

// history is all answers of a round. It is safe for concurrent use.
type history struct {
	mu      sync.Mutex
	answers []answer
}

func (h *history) add(a answer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.answers = append(h.answers, a)
}

// of returns an operation's answers in the order in which they came.
func (h *history) of(operation string) (found []answer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, a := range h.answers {
		if a.operation == operation {
			found = append(found, a)
		}
	}
	slices.SortStableFunc(found, func(a, b answer) int { return a.got.Compare(b.got) })
	return found
}

// describe writes an operation's history for people.
func describe(o operation, answers []answer) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, policy %s\n", o.name, o.policy)
	for i, r := range o.runs {
		fmt.Fprintf(&b, "  %s  run %d, fence %d, effect %v, refused %v, came to its end %v\n", r.began.Format("05.000"), i+1, r.fence, r.effect, r.refused, r.ended)
	}
	for _, a := range answers {
		fmt.Fprintf(&b, "  %s\n", a)
	}
	return b.String()
}
