package server_test

import (
	"strings"

	"github.com/coatcheck/coatcheck/api"
)

var (
	acquireLock = call{method: "POST", path: "/lock/fresh"}
	renewLock   = call{method: "PUT", path: "/lock/held", header: []string{"Lease-Token: {held}"}}
	releaseLock = call{method: "DELETE", path: "/lock/held", header: []string{"Lease-Token: {held}"}}
)

func badLockNames() (rows []bad) {
	for _, taker := range []call{acquireLock, renewLock, releaseLock, {method: "GET"}, {method: "DELETE", path: "?force=1"}} {
		_, query, forced := strings.Cut(taker.path, "?")
		for _, name := range append(badName, strings.Repeat("a", 201)) {
			taker.path = "/lock/" + name
			if forced {
				taker.path += "?" + query
			}
			rows = append(rows, bad{call: taker, code: "invalid-name", field: "name"})
		}
	}
	return rows
}

func badLockRoutes() (rows []bad) {
	for _, path := range []string{"/lock/held/", "/lock/held/more", "/locks", "/LOCK/held"} {
		for _, method := range []string{"GET", "POST", "PUT", "DELETE"} {
			rows = append(rows, bad{call: call{method: method, path: path, header: []string{"Lease-Token: {held}"}}, code: "not-found"})
		}
	}
	for _, method := range []string{"PATCH", "HEAD", "BREW"} {
		rows = append(rows,
			bad{call: call{method: method, path: "/lock/held"}, code: "method-not-allowed", allow: "GET POST PUT DELETE"},
			bad{call: call{method: method, path: "/lock"}, code: "method-not-allowed", allow: "GET"})
	}
	return append(rows, bad{call: call{method: "POST", path: "/lock"}, code: "method-not-allowed", allow: "GET"})
}

func badLockFields() (rows []bad) {
	add := func(more []bad) { rows = append(rows, more...) }
	for _, taker := range []call{acquireLock, renewLock} {
		add(millis(taker, "ttl_ms", `{"ttl_ms":*}`, 100, 24*3600*1000))
		add(badField(taker, "TTL_MS", `{"TTL_MS":*}`, "1000"))
		add(badField(taker, "ttl_ms", `{"ttl_ms":1000,"ttl_ms":*}`, "1000"))
		add(badField(taker, "body", "*", "null", "[]", "5", `"x"`, "{", "{}{}", "{}x", "\xff", "{\"ttl_ms\":\xff}", `{"ttl_ms":}`, "wait_ms=5"))
		add(badField(taker, "lease", `{"lease":*}`, `"x"`))
		taker.body = "{}" + strings.Repeat(" ", lowLimit)
		rows = append(rows, bad{call: taker, code: "payload-too-large"})
	}
	add(badField(acquireLock, "wait_ms", `{"wait_ms":*}`, append(notWhole, "-1", "86400001", "9223372036854775807", "-9223372036854775808")...))
	add(badField(acquireLock, "owner", `{"owner":*}`, notName...))
	add(badField(acquireLock, "mode", `{"mode":*}`, `"Shared"`, `"write"`, `"exclusive "`, `"exclusive|shared"`, "5", "[]", "true"))
	add(badField(acquireLock, "permits", `{"permits":*}`, append(notWhole, "0", "-1", "1000001", "9223372036854775807")...))
	add(badField(acquireLock, "permits", `{"mode":*,"permits":2}`, `"exclusive"`, `"shared"`))
	add(badField(acquireLock, "take", `{"permits":3,"take":*}`, append(notWhole, "0", "-1", "4", "9223372036854775807")...))
	add(badField(acquireLock, "take", `{"take":*}`, "2"))
	add(badField(renewLock, "wait_ms", `{"wait_ms":*}`, "0"))
	return rows
}

func badLockQueries() (rows []bad) {
	add := func(method, path, field string, header ...string) {
		rows = append(rows, bad{call: call{method: method, path: path, header: header}, code: "invalid-request", field: field})
	}
	for _, force := range []string{"", "-1", "01", "1.5", "1e3", "x", "true", "%00", "9007199254740992", "99999999999999999999"} {
		add("DELETE", "/lock/held?force="+force, "force")
		add("DELETE", "/lock/held?force="+force, "force", "Lease-Token: {held}")
	}
	add("DELETE", "/lock/held?force=1&force=1", "force")
	add("DELETE", "/lock/held?force=1", "force", "Lease-Token: {held}") // which of the two
	add("DELETE", "/lock/held?fence=1", "fence", "Lease-Token: {held}")
	for _, method := range []string{"GET", "POST", "PUT"} {
		add(method, "/lock/held?wait_ms=5", "wait_ms", "Lease-Token: {held}")
		add(method, "/lock/held?force=1", "force", "Lease-Token: {held}")
	}
	for _, n := range []string{"", "0", "-1", "1001", "01", "x", "9223372036854775808"} {
		add("GET", "/lock?n="+n, "n")
	}
	for _, name := range []string{"a%20b", "a%2Fb", "%00", "%C3%A9", strings.Repeat("a", 201)} {
		add("GET", "/lock?prefix="+name, "prefix")
		add("GET", "/lock?cursor="+name, "cursor")
	}
	add("GET", "/lock?n=1&n=1", "n")
	add("GET", "/lock?from=0", "from")
	return rows
}

func badLockHeaders() (rows []bad) {
	for _, c := range []call{renewLock, releaseLock} {
		with := func(code api.Code, field string, header ...string) {
			c.header = header
			rows = append(rows, bad{call: c, code: code, field: field})
		}
		with("invalid-request", "Lease-Token")
		with("invalid-request", "Lease-Token", "Lease-Token: ")
		with("invalid-request", "Lease-Token", "Lease-Token: {held}", "Lease-Token: {held}")
		with("invalid-request", "Lease-Token", "Authorization: Bearer {held}")
		for _, token := range []string{
			"x", "{other}", "{held}x", "x{held}", "{held}127.0.0.1", `"{held}"`, "{held}, {held}", "{w0}", "AAAAAAAAAAAAAAAAAAAAAA", strings.Repeat("x", 10_000), "\xff", "*", "-", "nil",
		} {
			with("lease-lost", "", "Lease-Token: "+token)
		}
	}
	return rows
}

func badLockStates() (rows []bad) {
	add := func(code api.Code, wait bool, method, path, body string, header ...string) {
		rows = append(rows, bad{call: call{method: method, path: path, body: body, header: header}, code: code, wait: wait})
	}
	for _, body := range []string{"", `{"mode":"shared"}`, `{"permits":2}`, `{"ttl_ms":100}`} {
		add("lock-held", true, "POST", "/lock/held", body)
	}
	for _, body := range []string{"", `{"mode":"shared"}`, `{"permits":2,"take":2}`} {
		add("lock-held", true, "POST", "/lock/other", body)
	}
	add("permits-mismatch", false, "POST", "/lock/other", `{"permits":3}`)
	for _, path := range []string{"/lock/unused", "/lock/other", "/lock/HELD"} {
		add("lease-lost", false, "PUT", path, "", "Lease-Token: {held}")
		add("lease-lost", false, "DELETE", path, "", "Lease-Token: {held}")
	}
	for _, path := range []string{"/lock/held?force=0", "/lock/held?force=1", "/lock/unused?force=0", "/lock/other?force=0"} {
		add("not-found", false, "DELETE", path, "")
		rows[len(rows)-1].field = "force"
	}
	return rows
}
