package server_test

import (
	"fmt"
	"slices"
	"strings"
)

// takers are the requests whose body is read, each with all else that it needs.
var takers = []call{
	{method: "POST", path: "/token"},
	{method: "POST", path: "/token/{issued}/claim"},
	{method: "POST", path: "/token/{claimed}/complete", header: []string{"Lease-Token: {lease}"}},
	{method: "POST", path: "/token/{claimed}/extend", header: []string{"Lease-Token: {lease}"}},
	{method: "POST", path: "/token/{claimed}/release", header: []string{"Lease-Token: {lease}"}},
	{method: "POST", path: "/worker/fresh"},
	{method: "PUT", path: "/worker/pool/0", header: []string{"Lease-Token: {w0}"}},
	{method: "POST", path: "/payments", header: []string{"Idempotency-Key: bad"}},
	{method: "POST", path: "/incr/k"},
	{method: "GET", path: "/incr/k"},
	{method: "PUT", path: "/worker/declared"},
	{method: "GET", path: "/id/snowflake/fresh"},
	{method: "GET", path: "/id/decode/0"},
	{method: "DELETE", path: "/counter/k"},
	{method: "POST", path: "/limit/k"},
	{method: "DELETE", path: "/limit/k"},
	{method: "DELETE", path: "/worker/pool/0", header: []string{"Lease-Token: {w0}"}},
	{method: "DELETE", path: "/lock/held", header: []string{"Lease-Token: {held}"}},
	{method: "DELETE", path: "/lock/held?force=1"},
}

// badDocuments is what no request takes for its body.
func badDocuments() (rows []bad) {
	for _, taker := range takers {
		for document, field := range map[string]string{
			// other kinds than an object
			"null": "body", "[]": "body", "[{}]": "body", `"x"`: "body", "5": "body", "true": "body",
			// no JSON
			"{": "body", "}": "body", `{"`: "body", `{"a`: "body", "{,}": "body", "{a:1}": "body", "{'a':1}": "body", "nul": "body", "by=5": "body",
			// other encodings
			"\x00": "body", "{}\x00": "body", "\ufeff{}": "body", "\xff": "body", "{\"\xff\":1}": "body", "{}\xff": "body", "<a/>": "body",
			// more than one
			"{}{}": "body", "{} {}": "body", "{},{}": "body", "{}x": "body", "{}\nnull": "body", "{}]": "body",
			// unknown
			`{"bogus":1}`: "bogus", `{"bogus":null}`: "bogus", `{"":1}`: "", "{\"\\u0000\":1}": `\x00`, `{"Bogus":{}} `: "Bogus",
			// deep
			strings.Repeat("[", 20_000): "body", strings.Repeat(`{"bogus":`, 20_000): "bogus", `{"bogus":` + strings.Repeat("[", 20_000): "bogus",
		} {
			c := taker
			c.body = document
			rows = append(rows, bad{call: c, code: "invalid-request", field: field})
		}
	}
	return rows
}

// badField makes rows of one request with a body that is wrong in one field. In the form, * is
// where the value goes.
func badField(taker call, field, form string, values ...string) (rows []bad) {
	for _, value := range values {
		taker.body = strings.Replace(form, "*", value, 1)
		rows = append(rows, bad{call: taker, code: "invalid-request", field: field})
	}
	return rows
}

// notWhole is what cannot be a whole number within 64 bits.
var notWhole = []string{`"1000"`, `""`, "1.5", "1000.0", "1e3", "1E3", "9223372036854775808", "-9223372036854775809", "99999999999999999999999", "true", "[1000]", "[]", "{}", `{"n":1}`}

// notName is what cannot be a name, as JSON.
var notName = []string{`"a b"`, `"a/b"`, `"a\u0000"`, `"\u00e9"`, `"a%3Ab"`, `"\ud800"`, `"` + strings.Repeat("a", 201) + `"`, "5", "true", "[]", "{}"}

func millis(taker call, field, form string, least, most int64) []bad {
	// a century among them
	outside := []string{"0", "-1", fmt.Sprint(least - 1), fmt.Sprint(most + 1), "3155760000000", "9223372036854775807", "-9223372036854775808"}
	return badField(taker, field, form, slices.Concat(notWhole, outside)...)
}

func badTokenFields() (rows []bad) {
	add := func(more []bad) { rows = append(rows, more...) }
	issue, claim, complete, extend := takers[0], takers[1], takers[2], takers[3]

	add(millis(issue, "ttl_ms", `{"ttl_ms":*}`, 1000, 30*24*3600*1000))
	add(badField(issue, "scope", `{"scope":*}`, notName...))
	add(badField(issue, "TTL_MS", `{"TTL_MS":*}`, "1000"))
	add(badField(issue, "ttl_ms", `{"ttl_ms":1000,"ttl_ms":*}`, "1000"))
	add(badField(issue, "body", `{"ttl_ms":*}`, "", "01", "+1", "-", "1,", "0x10", "NaN", "1 1", `"`, `1,"scope"`))
	add(badField(issue, "body", `{"scope":*}`, "\"\xff\"", "\"\xc3\"", "\"\xed\xa0\x80\"", `"\x"`, "\"a\nb\""))

	add(badField(claim, "fingerprint", "*", `{}`, `{"fingerprint":""}`, `{"fingerprint":null}`, `{"fingerprint":5}`, `{"fingerprint":["f"]}`,
		`{"fingerprint":"`+strings.Repeat("f", 257)+`"}`, `{"fingerprint":"`+strings.Repeat("é", 129)+`"}`))
	add(badField(claim, "body", `{"fingerprint":*}`, "\"\xff\""))
	// half of a surrogate pair, which would be the same replacement character as any other half
	add(badField(claim, "fingerprint", `{"fingerprint":*}`, `"\ud83d"`, `"a\udc00b"`, `"\ud83d\u0061"`))
	add(badField(claim, "owner", `{"fingerprint":"f","owner":*}`, `"orders-service-eu"`, `"AAAAAAAAAAAAAAAAAAAAAA"`, `""`, "null", "5", "[]"))
	add(badField(claim, "policy", `{"fingerprint":"f","policy":*}`, `"maybe"`, `"HOLD"`, `"hold "`, `"hold|takeover"`, "5", "[]"))
	add(millis(claim, "lease_ms", `{"fingerprint":"f","lease_ms":*}`, 100, 24*3600*1000))

	add(badField(complete, "status", `{"status":*}`, append(notWhole, "0", "-1", "99", "100", "199", "600", "null")...))
	add(badField(complete, "status", "*", "{}", `{"headers":{}}`))
	add(badField(complete, "headers", `{"status":200,"headers":*}`, "[]", `"x"`, "5", `{"A":1}`, `{"A":["x"]}`, `{"A":{}}`,
		`{"":"x"}`, `{"A b":"x"}`, `{"A:":"x"}`, `{"A":"x\r\nSet-Cookie: y"}`, `{"A":"x\u0000"}`, `{"X-B":"1","x-b":"2"}`))
	add(badField(complete, "body_base64", `{"status":200,"body_base64":*}`, `"!"`, `"YQ"`, `"YQ==x"`, `"Y Q=="`, `"_-8="`, "5", "{}", `["a"]`))
	add(badField(complete, "body_not_kept", `{"status":200,"body_not_kept":*}`, `"true"`, "1"))

	add(millis(extend, "lease_ms", `{"lease_ms":*}`, 100, 24*3600*1000))
	return rows
}

func badWorkerFields() (rows []bad) {
	add := func(more []bad) { rows = append(rows, more...) }
	acquire, renew, create := takers[5], takers[6], takers[10]
	for _, taker := range []call{acquire, renew, create} {
		add(millis(taker, "ttl_ms", `{"ttl_ms":*}`, 100, 24*3600*1000))
	}
	for _, taker := range []call{acquire, create} {
		add(badShapes(taker))
	}
	add(badField(acquire, "identity", `{"identity":*}`, notName...))
	add(badField(create, "identity", `{"identity":*}`, `"me"`, "null")) // of a lease, not of a pool
	add(badProofs(renew))
	for _, id := range []string{"-1", "-0", "01", "00", "+1", "abc", "1.0", "1e0", "0x0", "1048576", "99999999999999999999", "%30", "%2F", "%00", "0%20", "٣"} {
		for _, method := range []string{"PUT", "DELETE"} {
			c := call{method: method, path: "/worker/pool/" + id, header: []string{"Lease-Token: {w0}"}}
			rows = append(rows, bad{call: c, code: "invalid-request", field: "worker_id"})
		}
	}
	return rows
}

// badShapes is what cannot be a pool's layout, epoch or datacenter.
func badShapes(taker call) (rows []bad) {
	add := func(more []bad) { rows = append(rows, more...) }
	add(badField(taker, "layout", `{"layout":*}`,
		`""`, `"41"`, `"41/10"`, `"41/10/12/1/1"`, `"41//12"`, `"/41/10/12"`, `"a/b/c"`, `"-1/10/12"`, `"41/-10/12"`, `"41/10/12@m"`, `"41/10/12 "`, `" 41/10/12"`, `"41.0/10/12"`,
		`"41/10/13"`, `"99/99/99"`, `"999/10/12"`, `"19/10/12"`, `"41/0/12"`, `"40/21/1"`, `"20/10/12"`, `"41/10/12\n"`, "5", "[41,10,12]", "{}", "true"))
	add(badField(taker, "epoch", `{"epoch":*}`,
		`""`, "0", "1577836800000", `"1577836800000"`, `"2020"`, `"2020-01-01"`, `"2020-01-01 00:00:00"`, `"2020-01-01T00:00:00"`, `"2020-13-01T00:00:00Z"`,
		`"2020-02-30T00:00:00Z"`, `"2020-01-01T24:00:00Z"`, `"2020-01-01T00:00:00z"`, `"2999-01-01T00:00:00Z"`, `"9999-12-31T23:59:59Z"`, `"10000-01-01T00:00:00Z"`,
		`"1969-12-31T23:59:59.999Z"`, `"0001-01-01T00:00:00Z"`, `"2020-01-01T00:00:00.0005Z"`, `"now"`, "[]", "{}", "true", "1.5"))
	// this layout has none
	add(badField(taker, "datacenter", `{"datacenter":*}`, append(notWhole, "-1", "1", "9223372036854775807")...))
	add(badField(taker, "datacenter", `{"layout":"41/5/5/12","datacenter":*}`, "-1", "32", "1048576"))
	// used up
	add(badField(taker, "layout", `{"layout":*}`, `"20/10/12"`, `"30/10/12@s","epoch":"1970-01-01T00:00:00Z"`))
	return rows
}

// badProofs is what cannot be what a holder tells of its lease, in each field.
func badProofs(renew call) (rows []bad) {
	add := func(more []bad) { rows = append(rows, more...) }
	const rest = `"not_after":"2026-01-01T00:00:00Z","layout":"41/1/12","epoch":"2020-01-01T00:00:00Z","fence":1`
	add(badField(renew, "not_after", `{"not_after":*}`, `""`, "0", "1767225600000", `"tomorrow"`, `"2026-02-30T00:00:00Z"`, "true", "[]", "{}"))
	add(badField(renew, "fence", `{"fence":*}`, notWhole...))
	add(badField(renew, "identity", `{"identity":*}`, "5", "true", "[]", "{}"))
	add(badField(renew, "layout", `{"not_after":"2026-01-01T00:00:00Z","epoch":"2020-01-01T00:00:00Z","fence":1,"layout":*}`, `"41"`, `"41/10/13"`, `"x"`, "5", "[]"))
	add(badField(renew, "epoch", `{"not_after":"2026-01-01T00:00:00Z","layout":"41/1/12","fence":1,"epoch":*}`, `"2020-01-01T00:00:00.0001Z"`, `"1969-12-31T23:59:59Z"`, `"x"`, "0"))
	add(badField(renew, "datacenter", "{"+rest+`,"datacenter":*}`, append(notWhole, "-1", "1", "32")...))
	add(badField(renew, "worker_id", "{"+rest+`,"worker_id":*}`, "0")) // it stands in the path
	return rows
}

func badPayments() (rows []bad) {
	add := func(field, form string, values ...string) {
		rows = append(rows, badField(takers[7], field, form, values...)...)
	}
	add("amount", `{"amount":*,"currency":"EUR","to":"a"}`, append(notWhole, "0", "-1", "1000000001", "9223372036854775807", "null")...)
	add("amount", "*", "", "{}", `{"currency":"EUR","to":"a"}`)
	add("currency", `{"amount":5,"currency":*,"to":"a"}`, `""`, `"eur"`, `"EURO"`, `"EU"`, `"E R"`, `"ÉUR"`, "5", "null", "[]")
	add("to", `{"amount":5,"currency":"EUR","to":*}`, append(notName, `""`, "null")...)
	add("Amount", `{"Amount":*,"currency":"EUR","to":"a"}`, "5")
	// of the answer, not of the request
	add("fence", `{"amount":5,"currency":"EUR","to":"a","fence":*}`, "1")
	return rows
}
