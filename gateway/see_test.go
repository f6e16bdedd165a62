package gateway

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/server"
)

// serveTokens starts the service whose tokens the gateway takes.
func serveTokens(t testing.TB, store *redisstore.Store) (url string) {
	t.Helper()
	service := server.New(server.Config{Store: store})
	web := httptest.NewServer(service.Handler())
	t.Cleanup(func() {
		web.Close()
		expect.Error(t, "closing the service", service.Close(context.WithoutCancel(t.Context())), nil)
	})
	return web.URL
}

// follow reads what a problem links to.
func (r *rig) follow(a answer) (body []byte) {
	r.t.Helper()
	see := a.problem().See
	if see != "" && see[0] == '/' {
		see = r.url + see
	}
	recorded := httptest.NewRecorder()
	response, err := r.client.Get(see)
	if err != nil {
		r.t.Fatalf("%s: see %q: %v", a.asked, see, err)
	}
	defer response.Body.Close()
	_, err = recorded.Body.ReadFrom(response.Body)
	expect.Error(r.t, "reading "+see, err, nil)
	expect.Equal(r.t, a.asked+": status of see "+see, response.StatusCode, http.StatusOK)
	return recorded.Body.Bytes()
}

func TestRefusalOfAClientsOwnKeyLinksToWhatIsThere(t *testing.T) {
	store := storetest.Open(t, redisstore.Config{URL: "embedded:"})
	for name, service := range map[string]string{"no-token-service": "", "token-service": serveTokens(t, store)} {
		t.Run(name, func(t *testing.T) {
			began, end := make(chan struct{}), make(chan struct{})
			upstream := newShop(t, func(http.ResponseWriter, *http.Request) {
				close(began)
				<-end
				panic(http.ErrAbortHandler)
			})
			r := start(t, upstream.URL, payments, on(store), func(c *Config) { c.TokenService = service })
			first := make(chan answer, 1)
			go func() { first <- r.pay(name) }()
			select {
			case <-began:
			case a := <-first:
				t.Fatalf("%s: got %s before the upstream began", a.asked, a.said())
			}
			running := r.pay(name)
			r.wantCode(running, api.InProgress)
			expect.Contains(t, "what the problem links to while the attempt runs", string(r.follow(running)), "POST /payments")
			close(end)
			unknown := <-first
			r.wantCode(unknown, api.OutcomeUnknown)
			expect.Contains(t, "what the problem links to of the attempt itself", string(r.follow(unknown)), "POST /payments")

			repeat := r.pay(name)
			r.wantCode(repeat, api.IdempotencyUnknown)
			if service == "" {
				expect.Equal(t, "link without a token service", repeat.problem().See, policyPath)
				r.follow(repeat)
				return
			}
			var shown api.Operation
			expect.Error(t, "reading the operation", json.Unmarshal(r.follow(repeat), &shown), nil)
			expect.Equal(t, "the operation that the problem links to", []any{shown.Operation, shown.State, shown.Route}, []any{repeat.problem().Operation, api.StateInDoubt, "POST /payments"})
		})
	}
}
