//go:build check && linux

package resolvers

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/coatcheck/coatcheck/idempotency"
)

// answer is what a client was given in the end.
type answer struct {
	key  string
	nth  int
	text string // "" = none in time
	why  string // the last answer, which was none of the payment
}

// book keeps the answers of all clients. It is safe for concurrent use.
type book struct {
	mu      sync.Mutex
	answers []answer
	unknown map[string]bool // keys answered outcome-unknown, without a second try
	// answers that were not the last, by their codes, and whether they say that they may be
	// repeated
	told map[string]int
}

func newBook() book { return book{unknown: map[string]bool{}, told: map[string]int{}} }

// Answers that have no code.
const (
	serviceFailed = "the service's own 503"
	goneGateway   = "no answer of a gateway that was killed"
	noAnswer      = "no answer"
)

// repeated are the codes upon which a client asks again.
var repeated = []string{
	"idempotency-in-progress", "idempotency-outcome-unknown", "idempotency-superseded", "outcome-unknown", "upstream-unavailable",
	"store-unavailable", serviceFailed, goneGateway, noAnswer,
}

// pay asks until there is an answer, by turns at both gateways.
func (tr *trial) pay(one task) {
	end := time.Now().Add(patience)
	a := answer{key: one.key, nth: one.nth}
	for try := one.nth; time.Now().Before(end) && tr.t.Context().Err() == nil; try++ {
		text, code, wait := tr.ask(one, tr.gateways[try%2])
		if one.once {
			return
		}
		if code == "" {
			a.text = text
			break
		}
		a.why = code
		if code == "idempotency-outcome-unknown" && !tr.resolves {
			tr.mu.Lock()
			tr.unknown[one.key] = true
			tr.mu.Unlock()
			return
		}
		if !slices.Contains(repeated, code) {
			break
		}
		time.Sleep(min(wait, 300*time.Millisecond) + rand.N(50*time.Millisecond))
	}
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.answers = append(tr.answers, a)
}

// ask sends a request once. The code is "" if it has its answer.
func (tr *trial) ask(one task, at *front) (text, code string, wait time.Duration) {
	process := at.process()
	ctx := context.Background()
	if one.once { // its client goes away at any moment
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, rand.N(3*limit))
		defer cancel()
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, process.URL+"/payments", strings.NewReader(one.key))
	if err != nil {
		panic(err) // the URL is a process's own
	}
	request.Header.Set("Idempotency-Key", one.key)
	if one.nth%2 == 1 {
		request.Header.Set("Prefer", "wait=20")
	}
	response, err := tr.web.Do(request)
	var body []byte
	counted := ""
	if err == nil {
		body, err = io.ReadAll(response.Body)
		_ = response.Body.Close() // it is read
	}
	switch {
	case err != nil && at.wasKilled(process):
		code = goneGateway
	case err != nil: // also of one that stood still for longer than it waits for a header
		code = noAnswer
	case response.StatusCode == http.StatusCreated && isPayment(response.Header):
		return string(body), "", 0
	default:
		var retryable bool
		code, retryable = codeOf(response, body)
		if !retryable {
			counted = ", not retryable"
		}
		seconds, _ := strconv.Atoi(response.Header.Get("Retry-After")) // none: no wait
		wait = time.Duration(seconds) * time.Second
	}
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.told[code+counted]++
	return "", code, wait
}

// isPayment reports whether an answer has the headers of the service's, and none of those that it
// tells the gateway something by.
func isPayment(header http.Header) bool {
	return header.Get("Content-Type") == "text/plain" && header.Get("Idempotency-Resolution") == "" && header.Get(idempotency.NotBegunHeader) == ""
}

// codeOf is what an answer says that is not the payment's.
func codeOf(response *http.Response, body []byte) (code string, retryable bool) {
	var problem struct {
		Code      string `json:"code"`
		Retryable bool   `json:"retryable"`
	}
	_ = json.Unmarshal(body, &problem)
	replayed := response.Header.Get("Idempotent-Replayed") == "true"
	switch {
	case problem.Code != "" && !replayed:
		return problem.Code, problem.Retryable
	case response.StatusCode == http.StatusServiceUnavailable && !replayed:
		return serviceFailed, true
	}
	return fmt.Sprintf("recorded: %t, %d %s with %v", replayed, response.StatusCode, body, response.Header), false
}

// findings are what a run had wrong.
type findings struct {
	twice      int // keys with several payments
	unanswered int // clients without an answer
	wrong      int // answers that are not that of the key's only payment
	samples    []string
}

func (f *findings) addf(n *int, format string, args ...any) {
	*n++
	if len(f.samples) < 20 {
		f.samples = append(f.samples, fmt.Sprintf(format, args...))
	}
}

// judge compares what clients were told with the payments, by key. With a resolver every client has
// its answer.
func (b *book) judge(payments map[string][]string, resolves bool) (f findings) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(payments)) {
		if ids := payments[key]; len(ids) > 1 {
			f.addf(&f.twice, "%s has %d payments: %v", key, len(ids), ids)
		}
	}
	for _, a := range b.answers {
		switch ids := payments[a.key]; {
		case a.text == "" && (resolves || !b.unknown[a.key]):
			f.addf(&f.unanswered, "client %d of %s has no answer; it was told last: %s", a.nth, a.key, a.why)
		case a.text == "":
		case len(ids) == 0 || !slices.ContainsFunc(ids, func(id string) bool { return a.text == "paid "+a.key+" "+id }):
			f.addf(&f.wrong, "client %d of %s was told %q; its payments: %v", a.nth, a.key, a.text, ids)
		case len(ids) > 1:
			f.wrong++
		}
	}
	return f
}
