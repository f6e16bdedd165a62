package gateway

import (
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// FastAPI, Go's mux and Django send a client on to the path with a slash, or without. Its key is
// good there, and afterwards on both.
func TestKeyIsGoodAfterARedirectToTheOtherSpelling(t *testing.T) {
	for _, status := range []int{307, 308} {
		for i, paths := range [][2]string{{"/payments", "/payments/"}, {"/payments/", "/payments"}, {"/payments?draft=0", "/payments/?draft=0"}} {
			upstream := newShop(t, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.RequestURI() == paths[0] {
					http.Redirect(w, r, paths[1], status)
					return
				}
				w.WriteHeader(http.StatusCreated)
				_, _ = w.Write([]byte("paid"))
			})
			r := start(t, upstream.URL, "routes: [{match: POST /payments}]")
			ask := func(path string) answer {
				return r.do("POST", path, "x", "Idempotency-Key: "+strconv.Itoa(status)+strconv.Itoa(i))
			}
			r.wantPaid(ask(paths[0]), "paid", false) // the client follows
			r.wantPaid(ask(paths[1]), "paid", true)
			r.wantPaid(ask(paths[0]), "paid", true)
			upstream.wantPaid(t, 2) // the redirect is one
		}
	}
}

// Django's APPEND_SLASH and many servers say 301. A client that follows with its method would get
// that recorded answer again at the other path, for ever.
func TestPermanentRedirectToAnotherSpellingIsNotKept(t *testing.T) {
	for i, row := range []struct {
		status         int
		path, location string
		keeps          bool
	}{
		{301, "/payments", "/payments/", false},
		{301, "/payments/", "/payments", false},
		{301, "/Payments", "/payments", false},
		{301, "/payments?a=1", "/payments/?a=1", false},
		{301, "/payments", "UPSTREAM/base/payments/", false},
		// what a service that has done its work may say
		{302, "/payments", "/payments/", true},
		{303, "/payments", "/payments/", true},
		{301, "/payments", "/payments", true},
		{301, "/payments", "/payments/?done=1", true},
		{301, "/payments", "/other", true},
		{301, "/payments", "https://other.example/payments/", true},
		{301, "/payments", "", true},
	} {
		var upstream *shop
		upstream = newShop(t, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.RequestURI() == "/base"+row.path {
				w.Header().Set("Location", strings.Replace(row.location, "UPSTREAM", upstream.URL, 1))
				w.WriteHeader(row.status)
				return
			}
			w.WriteHeader(http.StatusCreated)
			_, _ = w.Write([]byte("paid"))
		})
		r := start(t, upstream.URL+"/base", "routes: [{match: POST /payments}]")
		r.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
		ask := func(path string) answer {
			return r.do("POST", path, "x", "Idempotency-Key: "+strconv.Itoa(i))
		}
		r.wantStatus(ask(row.path), row.status)
		if row.keeps {
			r.wantReplayed(ask(row.path), true)
			upstream.wantPaid(t, 1)
			continue
		}
		to := row.location[strings.LastIndex(row.location, "/payments"):]
		r.wantPaid(ask(to), "paid", false)
		r.wantPaid(ask(row.path), "paid", true)
		upstream.wantPaid(t, 2)
	}
}

func TestSpellingsOfOneRouteAreOnePath(t *testing.T) {
	exact := func(r *guardedRoute) { r.DistinctCase, r.DistinctSlash, r.DistinctFormat = true, true, true }
	for _, row := range []struct {
		pattern, path, want string
		set                 func(*guardedRoute)
	}{
		{"POST /payments", "/payments", "/payments", nil},
		{"POST /payments", "/payments/", "/payments", nil},
		{"POST /payments", "/Payments.json", "/payments", nil},
		{"POST /Orders/{id}/pay", "/orders/AbC/PAY/", "/Orders/AbC/pay", nil},
		{"POST /payments", "/payments.xml/", "/payments", nil},
		{"POST /orders/", "/orders.json", "/orders", nil},
		{"POST /orders/{id}/pay", "/orders/a.b/pay.json", "/orders/a.b/pay", nil},
		{"POST /orders/{id}", "/orders/a.json", "/orders/a.json", nil},
		{"POST /orders/", "/orders/a.json/", "/orders/a.json", nil},
		{"POST /report.csv", "/report.csv", "/report.csv", nil},
		{"POST /orders/", "/orders", "/orders", nil},
		{"POST /orders/", "/orders/", "/orders", nil},
		{"/", "/", "/", nil},
		{"POST /payments", "/Payments.json/", "/Payments.json/", exact},
	} {
		route := &guardedRoute{Route: Route{}}
		route.Name = row.pattern
		if row.set != nil {
			row.set(route)
		}
		expect.Equal(t, row.path+" of the route "+row.pattern, route.spelling(row.path), row.want)
	}
}

// A pattern that ends in a slash, and does not stand for the path without it.
func TestDistinctSlashOfAPatternThatEndsInOne(t *testing.T) {
	for i, row := range []struct {
		pattern, path string
		guarded       bool
	}{
		{"POST /payments/", "/payments/", true},
		{"POST /payments/", "/payments/42", true},
		{"POST /payments/", "/payments", false},
		{"POST /a/{b}/", "/a/b", false},
		{"POST /a/{b}/", "/a/b/c", true},
		{"POST /payments/{$}", "/payments", false},
		{"POST /payments/{$}", "/payments/", true},
	} {
		upstream := newShop(t, nil)
		r := start(t, upstream.URL, "routes: [{match: '"+row.pattern+"', trailing_slash: false}]")
		for range 2 {
			r.do("POST", row.path, "x", "Idempotency-Key: "+strconv.Itoa(i))
		}
		a := r.do("POST", row.path, "x", "Idempotency-Key: "+strconv.Itoa(i))
		got := strings.EqualFold(a.header.Get("Idempotent-Replayed"), "true")
		expect.Equal(t, "POST "+row.path+" is guarded by "+row.pattern, got, row.guarded)
	}
}

// What stands for a wildcard is what the request is about. A dot in it is part of a name: another
// caller's answer would be worse than a request that is refused.
func TestWildcardsWithDotsAreDifferentRequests(t *testing.T) {
	upstream := newShop(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write([]byte("paid " + r.URL.EscapedPath()))
	})
	r := start(t, upstream.URL, "routes: [{match: 'POST /orders/{id}'}, {match: POST /orders/}, {match: 'POST /files/{path...}'}]")
	for i, row := range [][2]string{
		{"/orders/a", "/orders/a.1"},
		{"/orders/a.1", "/orders/a.2"},
		{"/orders/ann@example.com", "/orders/ann@example.org"},
		{"/orders/v1.2", "/orders/v1.3"},
		{"/orders/42", "/orders/42.json"},
		{"/orders/x/a.1", "/orders/x/a.2"},
		{"/files/a%2Fb", "/files/a/b"},
		{"/files/a.pdf", "/files/a.png"},
		{"/files/x/a.csv", "/files/x/a"},
	} {
		ask := func(path string) answer {
			return r.do("POST", path, "x", "Idempotency-Key: k"+strconv.Itoa(i))
		}
		r.wantPaid(ask(row[0]), "paid "+row[0], false)
		r.wantCode(ask(row[1]), api.PayloadMismatch)
		r.wantPaid(ask(row[0]), "paid "+row[0], true)
	}
}
