package browser_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/server"
)

// evilHost is a name that the browser finds at this machine, as it does after DNS rebinding.
const evilHost = "evil.test"

// attack sends what a page can have a browser send to another origin: it sees no answer, and needs
// none. Each way counts, locks or leases under a name of its own.
const attack = `(async (target) => {
	const blind = (path, init) => fetch(target + path, {mode: 'no-cors', ...init}).catch(() => {});
	const loaded = (element, at) => new Promise((done) => { element.onload = element.onerror = done; document.body.append(element); element.src = at; });
	await blind('/lock/l', {method: 'POST', body: '{"ttl_ms":86400000}'});
	await blind('/worker/default', {method: 'POST', body: '{}'});
	await blind('/token', {method: 'POST'});
	await blind('/incr/posted', {method: 'POST'});
	await blind('/incr/fetched');
	await blind('/api/segment/get/fetched');
	await blind('/tinyid/id/nextIdSimple?bizType=fetched&token=t');
	await fetch(target + '/counter/put', {method: 'PUT', body: '{"value":5}'}).catch(() => {});
	await loaded(new Image(), target + '/incr/image');
	await loaded(document.createElement('iframe'), target + '/incr/frame');
	await loaded(document.createElement('script'), target + '/incr/script');
	const [form, frame] = [document.createElement('form'), document.createElement('iframe')];
	frame.name = 'answer';
	document.body.append(frame, form);
	Object.assign(form, {method: 'POST', action: target + '/incr/form', target: 'answer'});
	await new Promise((done) => { frame.onload = done; form.submit(); });
	return 'done';
})`

// foreign is a page of another origin, under a name of this machine.
func foreign(t *testing.T, host string) (origin string) {
	t.Helper()
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprint(w, "<!doctype html><title>elsewhere</title><link rel=icon href=data:,><body>")
	}))
	t.Cleanup(web.Close)
	return "http://" + host + ":" + portOf(t, web.URL)
}

func portOf(t *testing.T, address string) string {
	t.Helper()
	at, err := url.Parse(address)
	if err != nil {
		t.Fatalf("the address %s: %v", address, err)
	}
	return at.Port()
}

// left is what the store has of what was asked for.
func (s *service) left() string {
	s.Helper()
	return fmt.Sprint(s.send(200, "GET", "/counter", "")["counters"], s.send(200, "GET", "/lock", "")["locks"], s.send(200, "GET", "/worker", "")["pools"])
}

// The page of an attacker, open in the browser of a user who runs a service without keys, takes
// nothing of it: neither from another site nor from another port of the same machine.
func TestForeignPageTakesNothing(t *testing.T) {
	for _, host := range []string{evilHost, "127.0.0.1", "localhost"} {
		s := serve(t, server.Config{})
		nothing := s.left()
		b := open(t, foreign(t, host), "403", "blocked", "net::ERR_", "CORS")
		expect.Equal(t, "the end of the attack", eval[string](b, attack+"('"+s.url+"')"), "done")
		expect.Equal(t, "what a page of "+host+" has made and taken", s.left(), nothing)
		if sent := len(b.requests("POST", "/")) + len(b.requests("GET", "/incr/")); sent < 8 {
			t.Errorf("a page of %s sent %d requests, want 8 at least", host, sent)
		}
	}
}

// Pages whose origin is configured may ask; this shows as well that the attack is one.
func TestForeignPageOfATrustedOriginMayAsk(t *testing.T) {
	origin := foreign(t, evilHost)
	s := serve(t, server.Config{CORSOrigins: []string{origin}})
	b := open(t, origin, "403", "blocked", "net::ERR_", "CORS")
	expect.Equal(t, "the end", eval[string](b, attack+"('"+s.url+"')"), "done")
	expect.Equal(t, "the lock's holders", len(s.send(200, "GET", "/lock/l", "")["holders"].([]any)), 1)
	for key, value := range map[string]float64{"posted": 1, "put": 5, "form": 1} {
		expect.Equal(t, "counter "+key, s.send(200, "GET", "/counter/"+key, "")["value"].(float64), value)
	}
	counted := eval[float64](b, "fetch('"+s.url+"/incr/read').then((answer) => answer.json()).then((answer) => answer.value)")
	expect.Equal(t, "what the page reads of GET /incr/read", counted, 1.0)
}

// After DNS rebinding the attacker's page is of the service's own origin: nothing but the name
// tells it apart.
func TestRebindingLeadsToNothing(t *testing.T) {
	s := serve(t, server.Config{})
	nothing := s.left()
	for _, path := range []string{"/console/", "/docs", "/counter", "/"} {
		b := open(t, "http://"+evilHost+":"+portOf(t, s.url)+path, "403", "favicon", "Content Security Policy")
		b.shows("body", "--allowed-hosts")
		for _, asked := range []string{"fetch('/incr/k')", "fetch('/counter')", "fetch('/lock/l', {method: 'POST', body: '{}'})", "fetch('/console/api/session')", "fetch('/counter/k', {method: 'PUT', body: '{\"value\":5}'})"} {
			// by the refused page's own policy
			got := eval[string](b, asked+".then((answer) => String(answer.status), () => 'blocked')")
			if got != "403" && got != "blocked" {
				t.Errorf("%s from %s: got %s, want 403 or blocked", asked, path, got)
			}
		}
	}
	expect.Equal(t, "what was made and taken", s.left(), nothing)
}
