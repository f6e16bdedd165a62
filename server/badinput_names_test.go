package server_test

import (
	"regexp"
	"strings"
)

// moving are the server's clock, and what is told by two clocks.
var moving = regexp.MustCompile(`"(server_time|expires_at)":"[^"]*"`)

// badName is what cannot be a name, as it stands in a path.
var badName = []string{
	"a%2Fb", "a%2fb", "%2F", "%2F..%2Fb", // a slash
	"%00", "a%00", "a%00b", "%0A", "a%0D%0Ab", "%7F", // NUL and other controls
	"a%252Fb", "a%2500", "a%2561", "a%25", // decoded twice each of these would be a name or a slash
	"a%20b", "a+b", "%20", "a%2Bb", "a,b", "a;b", "a=b", "a&b", "a!b", "a$b", "a'b", "(a)", "a*", "a%3Fb", "a%23b", "a%22b", "a%3Cb", "a%5Cb", "a%7Bb%7D", "a%5Bb%5D",
	"a|b", "a^b", "{a}", "a\\b", "a`b", "a%2Fb|c", // not encoded as they should be
	// not ASCII, or not UTF-8
	"%C3%A9", "é", "%D0%BA%D0%BB", "%F0%9F%8E%AB", "%E2%80%93", "%FF", "%EF%BC%8F", "a%CC%81",
	strings.Repeat("a", 10_000), strings.Repeat("%61", 10_000), strings.Repeat("%2F", 3000),
}

func badNames() (rows []bad) {
	add := func(method, path, field string, names ...string) {
		for _, name := range names {
			c := call{method: method, path: strings.Replace(path, "*", name, 1), header: []string{"Lease-Token: {w0}"}}
			rows = append(rows, bad{call: c, code: "invalid-name", field: field})
		}
	}
	tooLong := strings.Repeat("a", 201)
	for path, methods := range map[string]string{"/incr/*": "GET POST", "/counter/*": "GET"} {
		for method := range strings.FieldsSeq(methods) {
			add(method, path, "key", append(badName, tooLong, strings.Repeat("%61", 201))...)
		}
	}
	for path, methods := range map[string]string{"/worker/*": "GET POST PUT", "/worker/*/0": "PUT DELETE", "/id/snowflake/*": "GET"} {
		for method := range strings.FieldsSeq(methods) {
			add(method, path, "pool", append(badName, tooLong)...)
		}
	}
	add("POST", "/limit/*", "name", append(badName, tooLong)...)
	add("DELETE", "/limit/*", "name", append(badName, tooLong)...)
	add("GET", "/id/segment/*", "tag", append(badName, tooLong)...)
	add("PUT", "/worker/*/0", "pool", "")
	add("DELETE", "/worker/*/0", "pool", "")
	add("GET", "/token/*", "token", append(badName, "a:b", "a@b", strings.Repeat("a", 256))...)
	for _, verb := range []string{"claim", "complete", "extend", "release"} {
		add("POST", "/token/*/"+verb, "token", append(badName, "", "a:b", "a@b", strings.Repeat("a", 256))...)
	}
	return rows
}

func badPaths() (rows []bad) {
	for _, path := range []string{
		"/nope", "/INCR/k", "/incr", "/incr/", "/incr//", "/incr//k", "/incr/k/", "/incr/k/more", "/incr/a/../k", "/counter/", "/counter/k/more",
		"/token/", "/token/{issued}/", "/token/{issued}/nope", "/token/{issued}/claim/more", "/worker/", "/worker/pool/0/more", "/worker/pool/0/",
		"/payments/", "/payments/1", "/livez/", "/readyz/x", "/problems/", "/problems/nope", "/problems/invalid-name/more", "/problems/invalid-name%00",
		"/%69ncr/k", "/./incr/k", "/x/../incr/k", "/.env", "/counter/unused", "/worker/unused", "/limit", "/limit/", "/limit/k/more",
		"/id", "/id/", "/id/snowflake/", "/id/snowflake/p/more", "/id/snowflake/p/", "/id/decode", "/id/decode/", "/id/decode/0/", "/id/decode/0/more", "/id/segment", "/id/segment/", "/id/segment/t/more", "/id/uuid/", "/id/nope",
		"/api/segment/get", "/api/segment/get/", "/api/segment/get/a/b", "/api/snowflake/get/", "/decodeSnowflakeId/", "/tinyid/id/", "/tinyid/id/nextId/", "/tinyid/nextId",
		"/id/decode/0?pool=unused",
	} {
		rows = append(rows, bad{call: call{method: "GET", path: path}, code: "not-found"})
	}
	for _, path := range []string{"/nope", "/token/", "/incr/", "/incr/k/more", "/token/{issued}/claim/", "/worker/pool/0/more", "/payments/x"} {
		rows = append(rows, bad{call: call{method: "POST", path: path}, code: "not-found"})
	}
	return rows
}

// badMethods has a method that no path takes on every path, and some that another path takes.
func badMethods() (rows []bad) {
	for path, allow := range map[string]string{
		"/": "GET", "/livez": "GET", "/readyz": "GET", "/idempotency-policy": "GET", "/problems/not-found": "GET",
		"/token": "POST", "/operation": "GET", "/token/{issued}": "GET", "/token/{issued}/claim": "POST", "/token/{claimed}/complete": "POST", "/token/{claimed}/extend": "POST",
		"/token/{claimed}/release": "POST", "/incr/k": "GET POST", "/counter/k": "GET", "/worker": "GET", "/worker/pool": "GET POST PUT", "/worker/pool/0": "PUT DELETE",
		"/id/snowflake": "GET", "/id/snowflake/p": "GET", "/id/segment/t": "GET", "/id/uuid": "GET", "/id/ulid": "GET", "/id/typeid": "GET", "/id/decode/0": "GET",
		"/payments": "GET POST", "/limit/k": "POST DELETE",
	} {
		for _, method := range []string{"PATCH", "TRACE", "BREW"} {
			rows = append(rows, bad{call: call{method: method, path: path}, code: "method-not-allowed", allow: allow})
		}
	}
	for _, c := range []call{
		{method: "HEAD", path: "/incr/k"},
		{method: "HEAD", path: "/incr/k?by=5"},
		{method: "PUT", path: "/incr/k"},
		{method: "DELETE", path: "/incr/k"},
		{method: "POST", path: "/counter/k"},
		{method: "PUT", path: "/token"},
		{method: "DELETE", path: "/token/{issued}"},
		{method: "GET", path: "/token/{issued}/claim"},
		{method: "PUT", path: "/token/{claimed}/complete", header: []string{"Lease-Token: {lease}"}, body: `{"status":200}`},
		{method: "GET", path: "/token/{claimed}/release", header: []string{"Lease-Token: {lease}"}},
		{method: "GET", path: "/worker/pool/0", header: []string{"Lease-Token: {w0}"}},
		{method: "POST", path: "/worker/pool/0", header: []string{"Lease-Token: {w0}"}},
		{method: "DELETE", path: "/payments"},
		{method: "HEAD", path: "/id/snowflake"},
		{method: "HEAD", path: "/id/snowflake/p?n=5"},
		{method: "POST", path: "/id/snowflake"},
		{method: "POST", path: "/id/snowflake/p"},
		{method: "DELETE", path: "/id/snowflake/p"},
		{method: "HEAD", path: "/id/segment/t"},
		{method: "POST", path: "/id/segment/t"},
		{method: "HEAD", path: "/id/uuid"},
		{method: "HEAD", path: "/id/ulid"},
		{method: "POST", path: "/id/typeid"},
		{method: "HEAD", path: "/id/decode/0"},
		{method: "POST", path: "/id/decode/0"},
		{method: "GET", path: "/limit/k"},
		{method: "PUT", path: "/limit/k"},
		{method: "DELETE", path: "/worker/pool"},
		{method: "POST", path: "/worker"},
		{method: "PUT", path: "/worker"},
		{method: "POST", path: "/livez"},
		{method: "POST", path: "/"},
	} {
		rows = append(rows, bad{call: c, code: "method-not-allowed", allow: "OPTIONS"})
	}
	return rows
}

func badQueries() (rows []bad) {
	for _, by := range []string{
		"", "0", "-1", "01", "%2B1", "1000001", "1.5", "1e3", "abc", "0x10", "1_000", "1%2C000", "%20", "%201", "1%20", "%00", "NaN", "9223372036854775808", "-9223372036854775809",
		"99999999999999999999999999", "%EF%BC%91",
	} {
		rows = append(rows, bad{call: call{method: "POST", path: "/incr/k?by=" + by}, code: "invalid-request", field: "by"})
	}
	for query, field := range map[string]string{
		"by=1&by=2": "by", "by=1&by=1": "by", "step=1": "step", "BY=1": "BY", "by=1&x": "x", "=1": "", "by%00=1": `by\x00`, "%C3%A9=1": `\u00e9`,
		"by=%zz": "query", "by=1;by=2": "query", strings.Repeat("x", 5000) + "=1": strings.Repeat("x", 40) + `\u2026`,
	} {
		rows = append(rows, bad{call: call{method: "GET", path: "/incr/k?" + query}, code: "invalid-request", field: field})
	}
	for _, unknown := range []struct{ method, path, field string }{
		{"GET", "/counter/k?by=1", "by"}, {"POST", "/token?ttl_ms=1000", "ttl_ms"}, {"GET", "/token/x?a=1", "a"},
		{"POST", "/token/x/claim?a=1", "a"}, {"POST", "/worker/p?ttl_ms=1000", "ttl_ms"}, {"PUT", "/worker/p/0?ttl_ms=1000", "ttl_ms"},
		{"POST", "/payments?amount=1", "amount"}, {"GET", "/payments?n=1", "n"},
	} {
		c := call{method: unknown.method, path: unknown.path}
		rows = append(rows, bad{call: c, code: "invalid-request", field: unknown.field})
	}
	for query, field := range map[string]string{
		"cursor=-1": "cursor", "cursor=": "cursor", "cursor=a": "cursor", "cursor=1048576": "cursor", "cursor=1.5": "cursor",
		"cursor=99999999999999999999": "cursor", "cursor=1&cursor=2": "cursor",
		"n=0": "n", "n=-1": "n", "n=4097": "n", "n=": "n", "n=all": "n", "n=9223372036854775808": "n", "from=1": "from",
	} {
		rows = append(rows, bad{call: call{method: "GET", path: "/worker/pool?" + query}, code: "invalid-request", field: field})
	}
	return rows
}
