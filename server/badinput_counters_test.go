package server_test

import (
	"strings"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/counter"
)

func badCounters() (rows []bad) {
	put, remove := call{method: "PUT", path: "/counter/k"}, call{method: "DELETE", path: "/counter/k"}
	add := func(c call, field string) { rows = append(rows, bad{call: c, code: api.InvalidRequest, field: field}) }
	rows = append(rows, badField(put, "value", `{"value":*}`, notWhole...)...)
	rows = append(rows, badField(put, "value", "*", "", "{}", `{"value":null}`, `{"ttl_ms":1000}`, `{"value":1,"value":1}`)...)
	rows = append(rows, millis(put, "ttl_ms", `{"value":1,"ttl_ms":*}`, 100, counter.MaxTTL.Milliseconds())...)
	rows = append(rows, badField(put, "by", "*", `{"value":1,"by":1}`)...)
	rows = append(rows, badField(put, "Value", "*", `{"Value":1}`)...)
	rows = append(rows, badField(put, "body", "*", "5", "null", "[]", `{"value":01}`, `{"value":+1}`, `{"value":1}{}`, "{\"value\":1}\xff")...)
	rows = append(rows, badField(remove, "value", "*", `{"value":1}`)...)
	for _, c := range []call{put, remove} {
		c.path += "?force=1"
		add(c, "force")
	}
	for _, ttl := range []string{"", "0", "99", "-1", "315360000001", "1.5", "1e3", "%201000", "abc", "9223372036854775808"} {
		add(call{method: "POST", path: "/incr/k?ttl_ms=" + ttl}, "ttl_ms")
	}
	for _, limit := range []string{"", "0", "-1", "+1", "1.5", "1e3", "x", "9223372036854775808"} {
		add(call{method: "GET", path: "/incr/k?limit=" + limit}, "limit")
	}
	for query, field := range map[string]string{
		"n=0": "n", "n=1001": "n", "n=": "n", "n=x": "n", "n=1.5": "n", "n=-1": "n", "prefix=a%20b": "prefix", "prefix=" + strings.Repeat("a", 201): "prefix", "cursor=%00": "cursor",
		"cursor=a%2Fb": "cursor", "prefix=a&prefix=b": "prefix", "limit=5": "limit",
	} {
		add(call{method: "GET", path: "/counter?" + query}, field)
	}
	for _, name := range append(badName, strings.Repeat("a", 201)) {
		for _, c := range []call{{method: "PUT", body: `{"value":1}`}, {method: "DELETE"}} {
			c.path = "/counter/" + name
			rows = append(rows, bad{call: c, code: api.InvalidName, field: "key"})
		}
	}
	return append(rows, bad{call: call{method: "DELETE", path: "/counter/unused"}, code: api.NotFound})
}
