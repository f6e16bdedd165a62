package idempotency

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// foreign are patterns that the mux takes and that guard nothing, with why.
var foreign = map[string]string{
	"POST /orders/:id":      `":id" stands in no path`,
	"/orders/:id":           `":id" stands in no path`,
	"POST /orders/*":        `"*" stands in no path`,
	"POST /orders?draft=0":  `"orders?draft=0" stands in no path`,
	"POST /orders#new":      `"orders#new" stands in no path`,
	"POST /orders/<int:id>": `"<int:id>" stands in no path`,
	"PSOT /orders/{id}":     `"PSOT" is no method`,
	"POST /orders/{id":      `"{id" stands in no path`,
	"POST /o/{id}/x/{id}":   `duplicate wildcard name "id"`,
	"POST /o\u2215{id}":     "stands in no path",
	"POST,PUT /orders":      `"POST,PUT" is no method`,
	"POST x.example/o/:id":  `":id" stands in no path`,
}

// saidBy is what a call panics with, "" if it does not.
func saidBy(call func()) (said string) {
	defer func() {
		if reason := recover(); reason != nil {
			said = fmt.Sprint(reason)
		}
	}()
	call()
	return ""
}

func TestPatternThatGuardsNothingIsRefused(t *testing.T) {
	tokens := embeddedTokens(t)
	for pattern, want := range foreign {
		said := saidBy(func() { tokens.Handle(http.NewServeMux(), pattern, Route{}, &handler{}) })
		if !strings.Contains(said, want) {
			t.Errorf("Handle of %q: got the panic %q, want one that says %s", pattern, said, want)
		}
	}
}

func TestNameInAnotherRoutersNotationIsRefused(t *testing.T) {
	for name, want := range foreign {
		if err := (Route{Name: name}).Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Check of a route with the name %q: got %v, want an error that says %s", name, err, want)
		}
	}
	for _, name := range []string{"payments", "payments/:id", "any word: *", "POST /orders/{id}", "/orders/{rest...}", "POST /orders/%3Aid", "nightly run / all"} {
		expect.Error(t, "Check of a route with the name "+name, (Route{Name: name}).Check(), nil)
	}
}

// The mux would name a file of this package for where the other pattern stands.
func TestPatternsThatDoNotGoTogetherAreBothNamed(t *testing.T) {
	for second, want := range map[string]string{
		"POST /a/{x}/b":   `"POST /a/{x}/b" conflicts with pattern "POST /a/{x}/b"`,
		"POST /a/{y}/b":   "POST /a/{y}/b matches the same requests as POST /a/{x}/b",
		"POST /a/c/{y}":   `both match some paths, like "/a/c/b"`,
		"POST a/{x}/{$}/": `"a" is no host`,
	} {
		mux := http.NewServeMux()
		mux.Handle("POST /a/{x}/b", &handler{})
		said := saidBy(func() { embeddedTokens(t).Handle(mux, second, Route{}, &handler{}) })
		expect.Contains(t, "panic of Handle for "+second, said, "idempotency: ", want)
		if strings.Contains(said, ".go:") {
			t.Errorf("Handle for %s: the panic %q names a file", second, said)
		}
	}
}

func TestHandleGuardsThePattern(t *testing.T) {
	mux, h := http.NewServeMux(), &handler{}
	embeddedTokens(t).Handle(mux, "POST /orders/{id}", Route{}, h)
	for i, path := range []string{"/orders/1", "/orders/1", "/orders/2"} {
		w := post(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			r.URL.Path = path
			mux.ServeHTTP(w, r)
		}), "", KeyHeader+": k"+path[len(path)-1:])
		wantStatus(t, "POST "+path, w, 201)
		wantReplayed(t, "POST "+path, w, i == 1)
	}
	h.wantRuns(t, 2)
}

// With one name on two paths a key that was used at the first is refused at the second for as long
// as its answer is kept.
func TestSecondPatternOfOneNameIsRefused(t *testing.T) {
	tokens, mux := embeddedTokens(t), http.NewServeMux()
	tokens.Handle(mux, "POST /pay", Route{Name: "pay"}, &handler{})
	for pattern, route := range map[string]Route{"POST /v2/pay": {Name: "pay"}, "PUT /pay": {Name: "pay"}, "POST /orders": {Name: "POST /pay"}} {
		said := saidBy(func() { tokens.Handle(mux, pattern, route, &handler{}) })
		if route.Name == "pay" {
			expect.Contains(t, "panic of Handle for "+pattern, said, `"pay" is that of the route "POST /pay"`, "leave Name empty")
		} else {
			expect.Equal(t, "panic of Handle for "+pattern, said, "")
		}
	}
	for what, call := range map[string]func(){
		"the same pattern in another mux": func() { tokens.Handle(http.NewServeMux(), "POST /pay", Route{Name: "pay"}, &handler{}) },
		"patterns without names": func() {
			tokens.Handle(mux, "POST /a", Route{}, &handler{})
			tokens.Handle(mux, "POST /b", Route{}, &handler{})
		},
	} {
		expect.Equal(t, "panic of Handle for "+what, saidBy(call), "")
	}
}
