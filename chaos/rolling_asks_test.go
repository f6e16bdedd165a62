//go:build nightly

package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	remote "github.com/coatcheck/coatcheck/client"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// balancer opens connections to either of two instances, or to the other one where that is stopped,
// as a load balancer does.
type balancer struct {
	fronts        []*front
	shared, alone *http.Client // keeping connections, and with one for each request
}

// anyInstance is where clients of a balancer send their requests; the service does not answer to
// names that it does not know.
const anyInstance = "http://127.0.0.1"

func newBalancer(t *testing.T) *balancer {
	b := &balancer{}
	for _, client := range []**http.Client{&b.shared, &b.alone} {
		transport := &http.Transport{DialContext: b.dial, DisableKeepAlives: client == &b.alone}
		t.Cleanup(transport.CloseIdleConnections)
		*client = &http.Client{Transport: transport}
	}
	return b
}

// client returns one of the two.
func (b *balancer) client() *http.Client {
	return []*http.Client{b.shared, b.alone}[rand.N(2)]
}

func (b *balancer) dial(ctx context.Context, network, _ string) (connection net.Conn, err error) {
	first := rand.N(len(b.fronts))
	for i := range b.fronts {
		process, _ := b.fronts[(first+i)%len(b.fronts)].process()
		connection, err = (&net.Dialer{}).DialContext(ctx, network, strings.TrimPrefix(process.URL, "http://"))
		if err == nil {
			return connection, nil
		}
	}
	return nil, err
}

// askGateway sends a request to the gateway, whose upstream tells the book of it.
func askGateway(ctx context.Context, web *http.Client, o *rollingOperation) answer {
	return o.send(ctx, web, "/hold?takes="+o.takes.String(), o.name+" of 12.99")
}

// askForPayment sends a request to the demo of the service, which writes a charge into its ledger.
func askForPayment(ctx context.Context, web *http.Client, o *rollingOperation) answer {
	return o.send(ctx, web, "/payments", `{"amount":1299,"currency":"EUR","to":"`+o.name+`"}`)
}

func (o *rollingOperation) send(ctx context.Context, web *http.Client, path, body string) (a answer) {
	a = answer{operation: o.name, client: "client", front: o.kind, sent: time.Now()}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, anyInstance+path, strings.NewReader(body))
	if err != nil {
		panic(err) // the path is fixed
	}
	request.Header.Set(byKey, o.name)
	request.Header.Set("Content-Type", "application/json")
	exchange(web, request, &a)
	return a
}

// doJob runs a function here, under a token of the service.
func (r *rolling) doJob(ctx context.Context, web *http.Client, o *rollingOperation) answer {
	a := answer{operation: o.name, client: "job", front: o.kind, sent: time.Now()}
	result, err := r.service(web).Do(ctx, o.token(), remote.ClaimOptions{}, func(_ context.Context, attempt *remote.Attempt) ([]byte, error) {
		text, _ := r.rig.book.noted(o.name, begun, 0, attempt.Fence)
		number, err := strconv.Atoi(text)
		if err != nil {
			return nil, err
		}
		time.Sleep(o.takes)
		text, _ = r.rig.book.noted(o.name, ended, number, attempt.Fence)
		return []byte(text), nil
	})
	a.got = time.Now()
	if err == nil {
		a.status, a.body, a.replayed = http.StatusCreated, string(result.Value), result.Replayed
		return a
	}
	a.failure = err.Error()
	if problem, is := errors.AsType[*remote.Error](err); is && !errors.Is(err, remote.ErrNotRecorded) {
		a.status, a.code = problem.Status, problem.Code
	}
	return a
}

// issue gets a token, asking until there is one.
func (r *rolling) issue() string {
	var last error
	for end := time.Now().Add(operationLimit); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		token, err := r.service(r.servers.client()).Issue(r.t.Context(), "", 0)
		if err == nil {
			return token.Value
		}
		last = err
	}
	r.t.Errorf("a token: got error %v for %v, want one", last, operationLimit)
	return ""
}

func (r *rolling) service(web *http.Client) *remote.Client {
	service, err := remote.New(remote.Config{URL: anyInstance, HTTPClient: web})
	if err != nil {
		panic(err) // the configuration is fixed
	}
	return service
}

// chargesAreNoted reads the ledger of the service, and notes each charge as a run.
func (r *rolling) chargesAreNoted() {
	response, err := r.servers.alone.Get(anyInstance + "/payments")
	expect.NoError(r.t, "Get", err)
	defer response.Body.Close()
	var ledger struct {
		Total    int `json:"total"`
		Payments []struct {
			To    string `json:"to"`
			Fence int64  `json:"fence"`
		} `json:"payments"`
	}
	if err := json.NewDecoder(response.Body).Decode(&ledger); err != nil || ledger.Total != len(ledger.Payments) {
		r.t.Fatalf("GET /payments: got %d of %d charges and error %v, want all", len(ledger.Payments), ledger.Total, err)
	}
	for _, charge := range ledger.Payments {
		if _, o := r.rig.book.noted(charge.To, begun, 0, charge.Fence); o == nil {
			r.t.Errorf("GET /payments: got a charge for %q, want only those of the test", charge.To)
		}
	}
}
