//go:build check

package gateway

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/coatcheck/coatcheck/idempotency"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
)

// webhooksPage is the routes file of docs/webhooks.md, with leases that end within the test.
func webhooksPage(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile("../docs/webhooks.md")
	if err != nil {
		t.Fatalf("reading the page: %v", err)
	}
	_, after, found := strings.Cut(string(page), "```yaml\n")
	routes, _, ends := strings.Cut(after, "```")
	if !found || !ends {
		t.Fatal("docs/webhooks.md has no routes file")
	}
	return strings.ReplaceAll(routes, "    frees: [4xx]\n", "    frees: [4xx]\n    lease_ms: 500\n    upstream_timeout_ms: 400\n")
}

// receiver is a service that takes webhooks: it looks at the signature first.
type receiver struct {
	mu   sync.Mutex
	runs map[string]int // by path and payload
	die  bool           // the next delivery has its effect, and the process ends
}

func (w *receiver) ServeHTTP(out http.ResponseWriter, r *http.Request) {
	payload, _ := io.ReadAll(r.Body)
	if r.Header.Get("X-Signature") != "good" {
		http.Error(out, "not signed", http.StatusBadRequest)
		return
	}
	w.mu.Lock()
	w.runs[r.URL.Path+" "+string(payload)]++
	n, die := len(w.runs), w.die
	w.die = false
	w.mu.Unlock()
	if die {
		panic(http.ErrAbortHandler)
	}
	out.WriteHeader(http.StatusAccepted)
	fmt.Fprintf(out, "effect %d", n)
}

func (w *receiver) ran() (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, runs := range w.runs {
		n += runs
	}
	return n
}

// delivery is what a sender sends, and sends again.
type delivery struct{ path, header, id, payload, again string }

var deliveries = []delivery{
	{"/hooks/standard", "webhook-id", "msg_2KWPBgLlAfxdpx2AI54pPJ85f4W", `{"type":"contact.created","data":{}}`, ""},
	{"/hooks/standard", "svix-id", "msg_loFOjxBNrRLzqYUf", `{"type":"invoice.paid"}`, ""},
	{"/hooks/github", "X-GitHub-Delivery", "72d3162e-cc78-11e3-81ab-4c9367dc0958", `{"action":"opened","number":1}`, ""},
	{"/hooks/shopify", "X-Shopify-Event-Id", "b54557e4-bdd9-4b37-8a5f-bf7d70bcd043", `{"id":820982911946154508}`, ""},
	{"/hooks/stripe", "", "", `{"id":"evt_1NG8Du2eZvKYlo2CUI79vXWy","type":"charge.succeeded","pending_webhooks":2}`,
		`{"id":"evt_1NG8Du2eZvKYlo2CUI79vXWy","type":"charge.succeeded","pending_webhooks":1}`},
}

func (d delivery) send(t *testing.T, r *rig, payload, signature string) (status int, body string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.url+d.path, strings.NewReader(payload))
	if err != nil {
		t.Fatalf("a delivery: %v", err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("X-Signature", signature)
	request.Header.Set("Authorization", signature) // another one each time
	if d.header != "" {
		request.Header.Set(d.header, d.id)
	}
	answer, err := r.client.Do(request)
	if err != nil {
		t.Fatalf("delivering to %s: %v", d.path, err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatalf("the answer of %s: %v", d.path, err)
	}
	return answer.StatusCode, string(text)
}

// fresh is the delivery of another event.
func (d delivery) fresh(n int) delivery {
	d.id = fmt.Sprintf("%s-%d", d.id, n)
	d.payload = strings.Replace(d.payload, "evt_1", fmt.Sprintf("evt_%d_", n), 1)
	d.again = ""
	return d
}

func TestWebhooksOfFourSenders(t *testing.T) {
	t.Parallel()
	app := &receiver{runs: map[string]int{}}
	upstream := httptest.NewServer(app)
	upstream.Config.ErrorLog = nil
	t.Cleanup(upstream.Close)
	store := storetest.Open(t, redisstore.Config{URL: redistest.Start(t).URL()})
	r := start(t, upstream.URL, webhooksPage(t), on(store))
	for n, d := range deliveries {
		before := app.ran()
		// a forgery comes first, and leaves nothing for the real one
		status, _ := d.send(t, r, d.payload, "forged")
		expect.Equal(t, d.path+": status of a forgery", status, http.StatusBadRequest)
		status, first := d.send(t, r, d.payload, "good")
		expect.Equal(t, d.path+": status", status, http.StatusAccepted)
		for range 3 {
			payload := d.payload
			if d.again != "" {
				payload = d.again
			}
			status, again := d.send(t, r, payload, "good")
			expect.Equal(t, d.path+": the answer to a repeat", fmt.Sprint(status, again), fmt.Sprint(http.StatusAccepted, first))
		}
		expect.Equal(t, d.path+": runs", app.ran()-before, 1)
		d.diesMidway(t, r, app, n)
	}
	status, body := delivery{path: "/hooks/github"}.send(t, r, "{}", "good")
	expect.Equal(t, "status without an id", status, http.StatusBadRequest)
	expect.Contains(t, "the refusal", body, "X-Github-Delivery", "idempotency-key-missing")
	status, body = delivery{path: "/hooks/stripe"}.send(t, r, `{"object":"event"}`, "good")
	expect.Equal(t, "status without an id in the payload", status, http.StatusBadRequest)
	expect.Contains(t, "the refusal", body, "/id of the payload")
}

// diesMidway has the receiver die with two deliveries, and settles them as the page says: the one
// happened, and the other did not and runs again.
func (d delivery) diesMidway(t *testing.T, r *rig, app *receiver, n int) {
	t.Helper()
	for i, decision := range []idempotency.Decision{idempotency.DecisionHappened, idempotency.DecisionNotBegun} {
		d := d.fresh(10*n + i)
		before := app.ran()
		app.mu.Lock()
		app.die = true
		app.mu.Unlock()
		status, _ := d.send(t, r, d.payload, "good")
		expect.Equal(t, d.path+": status of a delivery whose receiver dies", status, http.StatusServiceUnavailable)
		var operation string
		expect.Eventually(t, d.path+" is in doubt", func() bool {
			status, _ := d.send(t, r, d.payload, "good")
			list, _, err := r.g.tokens.List(t.Context(), "POST "+d.path, "", 100)
			if err != nil || len(list) == 0 {
				return false
			}
			operation = list[0].Name
			return status == http.StatusConflict
		})
		err := r.g.tokens.Settle(t.Context(), operation, idempotency.Settlement{Decision: decision, Answer: idempotency.Answer{Status: http.StatusOK}})
		expect.MustEqual(t, "error of settling", err, nil)
		status, _ = d.send(t, r, d.payload, "good")
		runs := map[idempotency.Decision]int{idempotency.DecisionHappened: 1, idempotency.DecisionNotBegun: 2}[decision]
		expect.Equal(t, d.path+": runs after "+string(decision), app.ran()-before, runs)
		expect.Equal(t, d.path+": accepted after "+string(decision), status/100, 2)
	}
}
