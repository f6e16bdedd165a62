package server_test

import (
	"strings"

	"github.com/coatcheck/coatcheck/api"
)

func badHeaders() (rows []bad) {
	owned := []call{
		{method: "POST", path: "/token/{claimed}/complete", body: `{"status":200}`},
		{method: "POST", path: "/token/{claimed}/extend"},
		{method: "POST", path: "/token/{claimed}/release"},
		{method: "PUT", path: "/worker/pool/0"},
		{method: "DELETE", path: "/worker/pool/0"},
	}
	with := func(c call, code api.Code, field string, header ...string) {
		c.header = header
		rows = append(rows, bad{call: c, code: code, field: field})
	}
	wrong := []string{
		"x", "{other0}", "{done-lease}", "{lease}x", "{w0}0", "{w1}", "x{w0}", `"{w0}"`, "{w0}, {w0}", "{w0}.1", "AAAAAAAAAAAAAAAAAAAAAA", "AAAAAAAAAAAAAAAAAAAAAA.1767225600000",
		strings.Repeat("x", 10_000), "\xff", "*", ".", "nil",
	}
	for i, c := range owned {
		code := api.Code("idempotency-superseded")
		if i >= 3 {
			code = "lease-lost"
		}
		with(c, "invalid-request", "Lease-Token")
		with(c, "invalid-request", "Lease-Token", "Lease-Token: ")
		with(c, "invalid-request", "Lease-Token", "Lease-Token: {lease}", "Lease-Token: {lease}")
		with(c, "invalid-request", "Lease-Token", "Lease-Token: {w0}", "Lease-Token: {w0}")
		with(c, "invalid-request", "Lease-Token", "Authorization: Bearer {lease}", "Idempotency-Token: {claimed}")
		for _, token := range wrong {
			with(c, code, "", "Lease-Token: "+token)
		}
	}
	for _, header := range []string{"Sec-Purpose: prefetch", "Sec-Purpose: prefetch;prerender", "Sec-Purpose: Prefetch", "Purpose: prefetch", "X-Purpose: preview", "X-Moz: prefetch"} {
		for _, path := range []string{"/incr/k", "/id/snowflake", "/id/snowflake/p", "/id/snowflake/p?n=5"} {
			with(call{method: "GET", path: path}, "forbidden", "Sec-Purpose", header)
		}
	}
	for _, key := range badKeys {
		with(call{method: "POST", path: "/incr/k"}, "idempotency-key-malformed", "Idempotency-Key", "Idempotency-Key: "+key)
		with(call{method: "POST", path: "/payments"}, "idempotency-key-malformed", "Idempotency-Key", "Idempotency-Key: "+key)
	}
	with(call{method: "POST", path: "/incr/k"}, "idempotency-key-malformed", "Idempotency-Key", "Idempotency-Key: a", "Idempotency-Key: a")
	with(call{method: "POST", path: "/payments"}, "idempotency-key-missing", "")
	with(call{method: "POST", path: "/incr/k?by=0"}, "invalid-request", "by", "Accept: text/plain")
	with(call{method: "GET", path: "/counter/text"}, "not-an-integer", "", "Accept: text/plain")
	with(call{method: "GET", path: "/nope"}, "not-found", "", "Accept: text/html")
	return rows
}

// badKeys is what cannot be an Idempotency-Key.
var badKeys = []string{
	"", "a, b", "a,b", `"a", "b"`, `"a";x=1`, `"a"; x`, `a;x=1`, `"a" b`, `"a"b`, "a b", `"a`, `a"`, `"`, `""`, `"a\"`, `"a\n"`, `a\b`, "a\tb",
	"\xc3\xa9", "\"\xc3\xa9\"", "\xff", ":YQ==:;a", "(a b)", `("a" "b")`,
	strings.Repeat("k", 256), `"` + strings.Repeat("k", 256) + `"`, strings.Repeat("k", 10_000),
}

// badStates is what is well formed and does not fit what the store holds.
func badStates() (rows []bad) {
	add := func(code api.Code, method, path, body string, header ...string) {
		rows = append(rows, bad{call: call{method: method, path: path, body: body, header: header}, code: code, wait: api.NewProblem(code, "").Retryable})
	}
	for _, key := range []string{"text", "float", "wide", "empty", "hash", "list", "set", "zset"} {
		add("not-an-integer", "GET", "/incr/"+key, "")
		add("not-an-integer", "POST", "/incr/"+key+"?by=1000000", "", "Idempotency-Key: fresh")
		add("not-an-integer", "GET", "/counter/"+key, "")
	}
	add("counter-overflow", "GET", "/incr/full", "")
	add("counter-overflow", "POST", "/incr/full?by=1000000", "", "Idempotency-Key: fresh")
	add("counter-overflow", "POST", "/incr/nearly?by=8", "")
	add("idempotency-payload-mismatch", "POST", "/incr/k?by=4", "", "Idempotency-Key: once")
	add("not-found", "GET", "/counter/unused", "")

	for _, unknown := range []string{"never", "AAAAAAAAAAAAAAAAAAAAAA", "..", "~", strings.Repeat("a", 255), "{issued}x"} {
		add("idempotency-token-unknown", "GET", "/token/"+unknown, "")
		add("idempotency-token-unknown", "POST", "/token/"+unknown+"/claim", `{"fingerprint":"f"}`)
		add("idempotency-token-unknown", "POST", "/token/"+unknown+"/complete", `{"status":200}`, "Lease-Token: {lease}")
		add("idempotency-token-unknown", "POST", "/token/"+unknown+"/extend", "", "Lease-Token: {lease}")
		add("idempotency-token-unknown", "POST", "/token/"+unknown+"/release", "", "Lease-Token: {lease}")
		add("idempotency-token-unknown", "POST", "/payments", "", "Idempotency-Token: "+unknown)
	}
	// no holder's, or no longer to be given back
	for _, token := range []string{"{issued}", "{done}"} {
		add("idempotency-superseded", "POST", "/token/"+token+"/release", "", "Lease-Token: {done-lease}")
		add("idempotency-superseded", "POST", "/token/"+token+"/extend", "", "Lease-Token: {done-lease}")
		add("idempotency-superseded", "POST", "/token/"+token+"/complete", `{"status":200}`, "Lease-Token: {lease}")
	}
	add("idempotency-in-progress", "POST", "/token/{claimed}/claim", `{"fingerprint":"f"}`)
	add("idempotency-payload-mismatch", "POST", "/token/{claimed}/claim", `{"fingerprint":"g"}`)
	add("idempotency-payload-mismatch", "POST", "/token/{done}/claim", `{"fingerprint":"g"}`)
	add("idempotency-payload-mismatch", "POST", "/payments", `{"amount":6,"currency":"EUR","to":"acct_1"}`, "Idempotency-Key: good")

	add("pool-exhausted", "POST", "/worker/pool", "")
	add("layout-mismatch", "POST", "/worker/pool", `{"layout":"41/10/12"}`)
	add("layout-mismatch", "POST", "/worker/other", `{"layout":"41/10/12"}`)
	add("layout-mismatch", "POST", "/worker/other", `{"epoch":"2021-01-01T00:00:00Z"}`)
	add("layout-mismatch", "POST", "/worker/other", `{"layout":"41/1/12","epoch":"2021-01-01T00:00:00Z"}`)
	add("layout-mismatch", "POST", "/worker/other", `{"ttl_ms":30000}`)
	add("layout-mismatch", "PUT", "/worker/pool/0", `{"ttl_ms":30000}`, "Lease-Token: {w0}")
	for _, body := range []string{"", `{"layout":"41/1/12","ttl_ms":3600000}`, `{"layout":"41/10/12"}`} {
		add("pool-exists", "PUT", "/worker/pool", body)
	}
	add("not-found", "GET", "/id/snowflake", "") // this server has no default pool
	rows[len(rows)-1].field = "pool"
	for _, path := range []string{"/worker/unused/0", "/worker/pool/2", "/worker/pool/1048575", "/worker/pool/1", "/worker/other/0"} {
		add("lease-lost", "PUT", path, "", "Lease-Token: {w0}")
		add("lease-lost", "DELETE", path, "", "Lease-Token: {w0}")
	}
	return rows
}

const (
	limit = 1 << 20 // bytes of a body
	// those that a victim takes: under the race detector, megabytes take seconds.
	lowLimit = 256 << 10
)

func badSizes() (rows []bad) {
	for i, taker := range takers {
		add := func(chunked bool, body string) {
			taker.body, taker.chunked = body, chunked
			rows = append(rows, bad{call: taker, code: "payload-too-large"})
		}
		for _, chunked := range []bool{false, true} {
			add(chunked, "{}"+strings.Repeat(" ", lowLimit+1-2))
			if i%4 == 0 { // far over takes its time
				add(chunked, `{"bogus":"`+strings.Repeat("x", 10*lowLimit)+`"}`)
			}
		}
	}
	return rows
}

// badIntegers is what Redis does not take for an integer and the embedded store does.
func badIntegers() []bad {
	return []bad{
		{call: call{method: "GET", path: "/incr/zeros"}, code: "not-an-integer"},
		{call: call{method: "GET", path: "/counter/zeros"}, code: "not-an-integer"},
		{call: call{method: "POST", path: "/incr/plus"}, code: "not-an-integer"},
		{call: call{method: "GET", path: "/counter/plus"}, code: "not-an-integer"},
	}
}
