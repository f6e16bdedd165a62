package gateway

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/coatcheck/coatcheck/idempotency"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

const contractFile = `
unmatched: refuse               # refuse | pass
routes:
  - match: "POST /payments"     # one or a list, as net/http.ServeMux has them
    guard: true                 # false: passes unguarded
    accept: either              # token | key | either
    policy: hold                # hold | takeover
    lease_ms: 30000             # how long an attempt may be silent before it is in doubt
    retention_ms: 86400000      # how long an answer is kept
    ack: 0                      # replicas that must have the claim before the handler runs
    max_body_bytes: 1048576
    canonical_json: false
    required: true              # false: a request without a header passes unguarded
`

func TestRoutesFileOfTheContractIsTheDefaults(t *testing.T) {
	whole, err := ParseRoutes([]byte(contractFile))
	if err != nil {
		t.Fatalf("ParseRoutes: %v", err)
	}
	short, err := ParseRoutes([]byte("routes: [{match: POST /payments}]"))
	if err != nil {
		t.Fatalf("ParseRoutes: %v", err)
	}
	for _, routes := range []Routes{whole, short} {
		expect.Equal(t, "ParseRoutes", routes, Routes{List: []Route{{
			Match: []string{"POST /payments"},
			Route: idempotency.Route{
				Name: "POST /payments", Accept: idempotency.AcceptEither, Policy: idempotency.PolicyHold, Lease: 30 * time.Second, Retention: 24 * time.Hour,
				MaxBody: 1 << 20, MaxAnswer: 1 << 20, MaxWait: 30 * time.Second, Doubts: []string{"408", "502", "503", "504"},
			},
			UpstreamTimeout: 30 * time.Second,
		}}}, asRead)
	}
}

func TestEveryFieldOfTheRoutesFileIsRead(t *testing.T) {
	whole, err := ParseRoutes([]byte(`
unmatched: pass
routes:
  - match: ["PUT /orders/{id}", "PUT /orders/{id}/"]
    keys: orders
    encoded: ["/", ";"]
    method_field: true
    accept: token
    policy: takeover
    lease_ms: 500
    retention_ms: 60000
    ack: 2
    max_body_bytes: 10
    max_answer_bytes: 20
    max_wait_ms: 0
    upstream_timeout_ms: 700
    canonical_json: true
    required: false
    scope: orders
    keep: [2xx, 404]
    frees: [401]
    doubts: []
    resolve: "POST /closed/{operation}"
    fingerprint_headers: [X-Tenant]
  - match: /both
    accept: key
    max_wait_ms: 5000
  - {match: /open/, guard: false}
`))
	if err != nil {
		t.Fatalf("ParseRoutes: %v", err)
	}
	routes := whole.List
	expect.MustEqual(t, "routes that ParseRoutes has read", len(routes), 3)
	expect.Equal(t, "unmatched", whole.Unmatched(), "pass")
	expect.Equal(t, "the guarded routes", len(whole.Guarded()), 2)
	expect.Equal(t, "the route with every field", routes[0], Route{
		Match: []string{"PUT /orders/{id}", "PUT /orders/{id}/"}, Encoded: []string{"/", ";"}, MethodField: true,
		ResolveAt: "POST /closed/{operation}",
		Route: idempotency.Route{
			Name: "PUT /orders/{id}", Accept: idempotency.AcceptToken, Policy: idempotency.PolicyTakeover, Lease: 500 * time.Millisecond, Retention: time.Minute, Ack: 2,
			MaxBody: 10, MaxAnswer: 20, MaxWait: routes[0].MaxWait, CanonicalJSON: true, Optional: true, Scope: "orders",
			Keys: "orders", Keep: []string{"2xx", "404"}, Frees: []string{"401"}, Doubts: []string{}, Headers: []string{"X-Tenant"},
		},
		UpstreamTimeout: 700 * time.Millisecond,
	}, asRead)
	if wait := routes[0].MaxWait; wait >= 0 {
		t.Errorf("max_wait_ms: 0: got %v, want less than 0, which is not at all", wait)
	}
	got := routes[1].Route
	expect.Equal(t, "the second route", idempotency.Route{Name: got.Name, Accept: got.Accept, MaxWait: got.MaxWait},
		idempotency.Route{Name: "/both", Accept: idempotency.AcceptKey, MaxWait: 5 * time.Second})
}

// asRead leaves out on which line of the file a route stands.
var asRead = cmpopts.IgnoreFields(Route{}, "line")

func TestRoutesFileFaults(t *testing.T) {
	for name, row := range map[string]struct{ file, want string }{
		"empty":                 {"", "empty"},
		"only a comment":        {"# nothing\n", "empty"},
		"not YAML":              {"\t[", "not YAML"},
		"a list":                {"- match: /a\n", "map with the field routes"},
		"two documents":         {"routes: [{match: /a}]\n---\nroutes: [{match: /b}]\n", "one YAML document"},
		"no routes":             {"{}", "routes: missing"},
		"null":                  {"routes:\n", "1 to 1000"},
		"no route":              {"routes: []\n", "1 to 1000"},
		"other field":           {"routes: [{match: /a}]\nrules: 1\n", "line 2: unknown field; here may be routes, unmatched"},
		"routes twice":          {"routes: [{match: /a}]\nroutes: [{match: /b}]\n", "line 2: routes: given more than once"},
		"a route as text":       {"routes: [POST /a]\n", "a map of fields belongs here: accept, ack, canonical_json"},
		"an alias":              {"x: &x {match: /a}\nroutes: [*x]\n", "unknown field"},
		"alias as route":        {"routes:\n  - &x {match: /a}\n  - *x\n", "line 3: a map of fields"},
		"merge":                 {"routes:\n  - &x {match: /a}\n  - {<<: *x, match: /b}\n", "line 3: unknown field"},
		"unknown field":         {"routes: [{match: /a, methods: POST}]", "line 1: unknown field; here may be accept, ack"},
		"field twice":           {"routes: [{match: /a, ack: 1, ack: 2}]", "ack: given more than once"},
		"no match":              {"routes: [{ack: 1}]", "match: missing"},
		"match empty":           {`routes: [{match: ""}]`, "match: a word, or a list of 1 to 100 words"},
		"match a number":        {"routes: [{match: 1}]", "match: a word, or a list of 1 to 100 words"},
		"match of nothing":      {"routes: [{match: []}]", "match: a list of 1 to 100 entries"},
		"unmatched":             {"unmatched: open\nroutes: [{match: /a}]\n", "line 1: unmatched: one of [refuse pass]"},
		"guard":                 {"routes: [{match: /a, guard: no}]", "guard: true or false"},
		"guard and a lease":     {"routes: [{match: /a, guard: false, lease_ms: 500}]", "lease_ms: of no use beside guard: false"},
		"encoded":               {`routes: [{match: "/{a}", encoded: ["/", "%2f"]}]`, "encoded: \"%2f\": of /, \\ and ;"},
		"encoded text":          {`routes: [{match: "/{a}", encoded: "/"}]`, "encoded: a list of 1 to 100 entries"},
		"keys":                  {"routes: [{match: /a, keys: 'a b'}]", "keys: 1 to 200 characters"},
		"ignore_case":           {"routes: [{match: /a, ignore_case: false}]", "unknown field"},
		"accept":                {"routes: [{match: /a, accept: any}]", "accept: one of [token key either]"},
		"policy":                {"routes: [{match: /a, policy: retry}]", "policy: one of [hold takeover]"},
		"lease low":             {"routes: [{match: /a, lease_ms: 99}]", "lease_ms: a whole number from 100 to 86400000"},
		"lease high":            {"routes: [{match: /a, lease_ms: 86400001}]", "100 to 86400000"},
		"lease with a unit":     {"routes: [{match: /a, lease_ms: 30s}]", "lease_ms: a whole number"},
		"lease fraction":        {"routes: [{match: /a, lease_ms: 300.5}]", "lease_ms: a whole number"},
		"lease quoted":          {`routes: [{match: /a, lease_ms: "300"}]`, "lease_ms: a whole number"},
		"lease hex":             {"routes: [{match: /a, lease_ms: 0x200}]", "lease_ms: a whole number"},
		"lease octal":           {"routes: [{match: /a, lease_ms: 0777}]", "lease_ms: a whole number"},
		"lease null":            {"routes: [{match: /a, lease_ms: }]", "lease_ms: a whole number"},
		"lease huge":            {"routes: [{match: /a, lease_ms: 99999999999999999999}]", "lease_ms: a whole number"},
		"retention low":         {"routes: [{match: /a, retention_ms: 999}]", "1000 to 34560000000"},
		"a status in two lists": {"routes: [{match: /a, keep: [503], frees: [503]}]", "frees: status 503 is in another list too"},
		"frees as text":         {"routes: [{match: /a, frees: 503}]", "frees: a list of 0 to 100"},
		"ack":                   {"routes: [{match: /a, ack: 101}]", "ack: a whole number from 0 to 100"},
		"body":                  {"routes: [{match: /a, max_body_bytes: 0}]", "1 to 1073741824"},
		"answer":                {"routes: [{match: /a, max_answer_bytes: 67108865}]", "1 to 67108864"},
		"wait":                  {"routes: [{match: /a, max_wait_ms: -1}]", "0 to 3600000"},
		"timeout":               {"routes: [{match: /a, upstream_timeout_ms: 0}]", "1 to 86400000"},
		"canonical":             {"routes: [{match: /a, canonical_json: yes}]", "canonical_json: true or false"},
		"required":              {"routes: [{match: /a, required: 1}]", "required: true or false"},
		"scope":                 {"routes: [{match: /a, scope: " + strings.Repeat("x", 201) + "}]", "scope: up to 200"},
		"keep empty":            {"routes: [{match: /a, keep: []}]", "keep: a list of 1 to 100"},
		"keep text":             {"routes: [{match: /a, keep: 2xx}]", "keep: a list of 1 to 100"},
		"keep class":            {"routes: [{match: /a, keep: [6xx]}]", `keep: status "6xx"`},
		"keep nested":           {"routes: [{match: /a, keep: [[2xx]]}]", "keep: every entry is one word"},
		"header":                {"routes: [{match: /a, fingerprint_headers: ['a b']}]", `header "a b"`},
		"too large":             {"routes: [{match: /a}]" + strings.Repeat(" ", maxFile), "up to 1048576 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ParseRoutes([]byte(row.file))
			expect.Contains(t, "the error of ParseRoutes", fmt.Sprint(err), row.want)
		})
	}
}

func TestAllFaultsOfTheRoutesFileAreToldTogether(t *testing.T) {
	_, err := ParseRoutes([]byte("routes:\n  - match: POST /a\n    lease_ms: 1\n    colour: red\n  - policy: none\n  - match: POST /b\n    ack: -1\n"))
	want := []string{"line 3: lease_ms", "line 4: unknown field", "line 5: policy", "line 5: match: missing", "line 7: ack"}
	expect.Equal(t, "faults that are told of five", strings.Count(fmt.Sprint(err), "\n")+1, len(want))
	expect.Contains(t, "error", fmt.Sprint(err), want...)
}

func FuzzRoutesFile(f *testing.F) {
	f.Add(contractFile)
	f.Add("routes: [{match: 'GET example.com/{a}/{b...}', keep: [2xx, 404], fingerprint_headers: [X-A]}, {match: /}]")
	f.Add("routes:\n  - &a {match: /a}\n  - *a\n")
	f.Add("routes: [{match: POST /{$}, max_wait_ms: 0, retention_ms: 1000, lease_ms: 1000}]")
	g := unconnected(f).g
	f.Fuzz(func(t *testing.T, file string) {
		routes, err := ParseRoutes([]byte(file))
		if err != nil {
			return
		}
		if len(routes.List) == 0 {
			t.Fatalf("ParseRoutes of %q: got no route and no error", file)
		}
		for _, route := range routes.List {
			if err := route.Check(); err != nil {
				t.Fatalf("Check of route %q: %v", route.Name, err)
			}
		}
		table, err := g.newTable(routes, "v") // panics on a route that the middleware refuses
		expect.MustEqual(t, "the error of newTable", err, nil)
		for _, method := range []string{"GET", "POST"} {
			table.find(httptest.NewRequest(method, "/a/b", nil))
		}
		expect.Equal(t, "published routes", len(table.published.Routes), len(routes.Guarded()))
	})
}

// What is in order and may not be meant.
func TestRemarksOnARoutesFile(t *testing.T) {
	t.Parallel()
	routes, err := ParseRoutes([]byte("routes:\n- match: /payments\n- {match: /open, guard: false}\n- {match: POST /a, key_header: [ce-source+ce-id, ce-source + ce-id]}\n- match: GET /b"))
	expect.MustEqual(t, "the error of ParseRoutes", err, nil)
	remarks := routes.Remarks()
	expect.MustEqual(t, "remarks", len(remarks), 2)
	expect.Contains(t, "first remark", remarks[0], "line 2", `"/payments" has no method`, "GET and HEAD are guarded", `"POST /payments"`)
	expect.Contains(t, "second remark", remarks[1], "line 4", `"ce-source+ce-id" is the name of one header`, `"ce-source + ce-id"`)
}
