package server_test

import (
	"net/url"
	"strings"

	"github.com/coatcheck/coatcheck/api"
)

func badIDs() (rows []bad) {
	add := func(path, field string) {
		rows = append(rows, bad{call: call{method: "GET", path: path}, code: "invalid-request", field: field})
	}
	for _, n := range []string{"", "0", "-1", "10001", "1.5", "1e3", "abc", "0x10", "01", "%2B1", "%201", "1%20", "%00", "9223372036854775808", "%EF%BC%91"} {
		add("/id/snowflake/p?n="+n, "n")
	}
	for _, format := range []string{"", "hex", "DECIMAL", "decimal%20", "base64", "decimal%2Cpadded", "%00", strings.Repeat("x", 5000)} {
		add("/id/snowflake/p?format="+format, "format")
		add("/id/decode/0?format="+format, "format")
	}
	for _, width := range []string{"", "0", "-1", "65", "1.5", "x", "018", "9223372036854775808"} {
		add("/id/snowflake/p?format=padded&width="+width, "width")
	}
	for _, format := range []string{"width=18", "format=decimal&width=18", "format=base62&width=18", "format=timed&width=24"} {
		add("/id/snowflake/p?"+format, "width")
	}
	for query, field := range map[string]string{"n=1&n=2": "n", "N=1": "N", "by=1": "by", "pool=p": "pool", "n=1;format=x": "query", "n=%zz": "query", "width=1&width=1": "width"} {
		add("/id/snowflake/p?"+query, field)
	}
	return append(rows, badDecodes()...)
}

// notID is what cannot be an id, by its format.
var notID = map[string][]string{
	"decimal": {
		"-1", "-0", "+1", "01", "00", "1.0", "1e3", "0x1", "abc", "1_000", "%201", "1%20", "1%0A", "%00", "%FF", "%D9%A3", "9223372036854775808", "99999999999999999999", "1%2F2", "1%252F2",
		strings.Repeat("1", 10_000), ".", "..", "AzL8n0Y58m7",
	},
	"padded": {"-000000000000000001", "000000000000000000a", strings.Repeat("0", 65), "9223372036854775808", "0%2B1"},
	"base36": {"-1", "01", "1y2p0ij32e8e8", "zzzzzzzzzzzzzz", "a_b", "%C3%A9"},
	"base62": {"-1", "01", "AzL8n0Y58m8", "zzzzzzzzzzzz", "a_b", "%C3%A9"},
	"base32": {"-1", "8000000000000", "ZZZZZZZZZZZZZZ", "U", "a_b", "%C3%A9"},
	"timed": {
		"0", "20200101000001000", "20200101000001000000409", "2020010100000100000040970", "201912312359599990000000", "209001010000000000000000", "202013010000010000004097", "202001010000010004194304",
		"2020010100000100000040x7", "-02001010000010000004097",
	},
}

func badDecodes() (rows []bad) {
	add := func(path string, code api.Code, field string) {
		rows = append(rows, bad{call: call{method: "GET", path: "/id/decode/" + path}, code: code, field: field})
	}
	for format, texts := range notID {
		for _, text := range texts {
			add(text+"?format="+format, "invalid-request", "id")
		}
	}
	add("9223372036854775807?layout=41/5/7", "invalid-request", "id") // beyond that layout
	add("18014398509481984?pool=pool", "invalid-request", "id")
	for _, layout := range []string{"", "41", "41/10", "41/10/13", "a/b/c", "41/10/12@m", "19/10/12", "41/10/12%00", "99/99/99"} {
		add("0?layout="+layout, "invalid-request", "layout")
	}
	// a plus is a space
	for _, epoch := range []string{"", "0", "2020", "2020-01-01", "2020-13-01T00:00:00Z", "1969-12-31T23:59:59Z", "now", "2020-01-01T00:00:00+01:00"} {
		add("0?epoch="+epoch, "invalid-request", "epoch")
	}
	for _, datacenter := range []string{"", "-1", "32", "x", "1.5", "01"} {
		add("0?layout=41/5/5/12&datacenter="+datacenter, "invalid-request", "datacenter")
	}
	add("0?layout=41/5/5/12&datacenter=1", "invalid-request", "datacenter") // the id is of another
	// and this layout has none
	add("0?datacenter=1", "invalid-request", "datacenter")
	for _, pool := range []string{"", "a%20b", "a%2Fb", "%00", "%C3%A9", strings.Repeat("a", 201), url.QueryEscape("{a}")} {
		add("0?pool="+pool, "invalid-name", "pool")
	}
	add("0?pool=pool&layout=41/1/12", "invalid-request", "pool")
	add("0?pool=pool&epoch=2020-01-01T00:00:00Z", "invalid-request", "pool")
	for query, field := range map[string]string{"pool=pool&pool=pool": "pool", "Layout=x": "Layout", "n=1": "n", "width=18": "width", "layout=%zz": "query"} {
		add("0?"+query, "invalid-request", field)
	}
	return rows
}
