package server_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/server"
)

func badSegments() (rows []bad) {
	add := func(path string, code api.Code, field string) {
		rows = append(rows, bad{call: call{method: "GET", path: path}, code: code, field: field})
	}
	for _, n := range []string{"", "0", "-1", "10001", "1.5", "1e3", "abc", "0x10", "01", "%2B1", "%00", "9223372036854775808"} {
		add("/id/segment/t?n="+n, "invalid-request", "n")
		add("/id/uuid?n="+n, "invalid-request", "n")
		add("/id/ulid?n="+n, "invalid-request", "n")
		add("/id/typeid?n="+n, "invalid-request", "n")
	}
	// opaque takes a key, which this service has not
	for _, format := range []string{"", "hex", "timed", "DECIMAL", "base64", "Opaque", "%00", "opaque"} {
		add("/id/segment/t?format="+format, "invalid-request", "format")
	}
	for _, width := range []string{"", "0", "65", "x", "018"} {
		add("/id/segment/t?format=padded&width="+width, "invalid-request", "width")
	}
	add("/id/segment/t?width=18", "invalid-request", "width")
	for _, version := range []string{"", "1", "5", "0", "07", "4.0", "seven", "%00"} {
		add("/id/uuid?version="+version, "invalid-request", "version")
	}
	for _, prefix := range []string{"Order", "order1", "_order", "order_", "or-der", "%00", "%C3%A9", "%20", strings.Repeat("a", 64)} {
		add("/id/typeid?prefix="+prefix, "invalid-request", "prefix")
	}
	add("/id/ulid?prefix=order", "invalid-request", "prefix")
	// of the year 10889, the third
	for _, id := range []string{"0", "81ARZ3NDEKTSV4RRFFQ69G5FAV", "7ZZZZZZZZZZZZZZZZZZZZZZZZZ"} {
		add("/id/decode/"+id+"?format=ulid", "invalid-request", "id")
	}
	for _, id := range []string{"0", "order_0", "Order_01h455vb4pex5vsknk084sn02q", "01H455VB4PEX5VSKNK084SN02Q"} {
		add("/id/decode/"+id+"?format=typeid", "invalid-request", "id")
	}
	for _, field := range []string{"pool", "layout", "epoch", "datacenter", "tag", "key"} {
		add("/id/decode/01ARZ3NDEKTSV4RRFFQ69G5FAV?format=ulid&"+field+"=x", "invalid-request", field)
	}
	for query, field := range map[string]string{"n=1&n=2": "n", "tag=x": "tag", "key=x": "key", "step=5": "step", "n=%zz": "query"} {
		add("/id/segment/t?"+query, "invalid-request", field)
	}
	add("/id/uuid?format=base62", "invalid-request", "format")
	add("/id/uuid?version=4&version=7", "invalid-request", "version")
	add("/id/decode/123456?tag=t", "invalid-request", "tag")
	add("/id/decode/123456?key=k", "invalid-request", "key")
	add("/id/decode/123456?format=opaque&tag=t", "invalid-request", "format")
	add("/id/decode/123456?format=opaque", "invalid-name", "tag")
	rows = append(rows, bad{call: call{method: "GET", path: "/id/segment/t", header: []string{"Sec-Purpose: prefetch"}}, code: "forbidden", field: "Sec-Purpose"},
		bad{call: call{method: "GET", path: "/id/uuid", header: []string{"Purpose: preview"}}, code: "forbidden", field: "Sec-Purpose"},
		bad{call: call{method: "GET", path: "/id/segment/t", body: `{"n":1}`}, code: "invalid-request", field: "n"})
	return rows
}

func badNumbers() (rows []bad) {
	add := func(query, field string) {
		rows = append(rows, bad{call: call{method: "POST", path: "/incr/fresh?" + query}, code: "invalid-request", field: field})
	}
	for _, template := range []string{
		"", "ORD", "{n}{n}", "{n:0}", "{n:19}", "{yyyyMMdd}", "{n", "n}", "{MMdd}-{n}", "{yyyyMMdd}{yyyy}{n}", "é{n}", "{n} ", "\x00{n}", "{nn}", strings.Repeat("a", 100) + "{n}", "{YYYYMMdd}-{n}",
		"{dd/MM/yyyy}-{n}", // its counter would have a slash in its name
	} {
		add("template="+url.QueryEscape(template), "template")
	}
	for _, calendar := range []string{"", "x", "{n}", "{MM}", "{yyyy}{MM}", "{yyyy/MM}", "{yyyy MM}", "{", "{yyyyMMdd}é"} {
		add("calendar="+url.QueryEscape(calendar), "calendar")
	}
	for _, zone := range []string{"", "Local", "Europe/Atlantis", "europe berlin", "../UTC", "/etc/passwd", "Europe/../Europe/Berlin", "Europe//Berlin", "%00", "+01:00", "UTC\n", strings.Repeat("a", 5000)} {
		add("template=%7Bn%7D&zone="+url.QueryEscape(zone), "zone")
	}
	for _, at := range []string{"", "today", "0", "2020-01-01T00:00:00Z", "9999-01-01T00:00:00Z", "1969-01-01T00:00:00Z"} {
		add("calendar=%7Byyyy%7D&at="+at, "at")
	}
	add("zone=UTC", "zone")
	add("at=2026-01-01T00:00:00Z", "at")
	add("template=%7Bn%7D&by=1001", "by")
	add("template=%7Bn%7D&by=0", "by")
	add("template=%7Bn%7D&ttl_ms=1000", "ttl_ms")
	add("calendar=%7Byyyy%7D&ttl_ms=1000", "ttl_ms")
	add("calendar=%7ByyyyMMdd%7D&template=%7Bn%7D", "template")
	add("calendar=%7ByyyyMMdd%7D&template=%7Byyyy%7D-%7Bn%7D", "template")
	add("template=%7Bn%7D&template=%7Bn%7D", "template")
	add("Template=%7Bn%7D", "Template")
	add("template=%7Bn%7D&format=opaque", "format")
	long := strings.Repeat("a", 195)
	rows = append(rows, bad{call: call{method: "GET", path: "/incr/" + long + "?calendar=%7Byyyy-MM%7D"}, code: "invalid-name", field: "key"},
		bad{call: call{method: "GET", path: "/incr/" + long + "?template=%7Byyyy-MM%7D-%7Bn%7D"}, code: "invalid-request", field: "template"},
		// it is at 3
		bad{call: call{method: "GET", path: "/incr/k?template=%7Bn:1%7D&by=7"}, code: "counter-overflow"},
		bad{call: call{method: "GET", path: "/incr/nearly?template=%7Bn:18%7D"}, code: "counter-overflow"},
		bad{call: call{method: "GET", path: "/incr/text?template=%7Bn%7D"}, code: "not-an-integer"})
	return rows
}

// What is wrong with the doors' requests is told as their own systems do: see the tests of the
// doors. This is about what must not happen.
func TestBadRequestsToTheDoorsTakeNothing(t *testing.T) {
	took := 0
	s := serve(t, server.Config{
		Store: storetest.Open(t, redisstore.Config{}), TinyidTokens: []server.TinyidToken{{BizType: "t", Token: "x"}}, MaxBody: 1024,
		SegmentSource: sourceFunc(func(string, int64) rangeOrError { took++; return rangeOrError{} }),
	})
	for _, path := range []string{
		"/api/segment/get/a%2Fb", "/api/segment/get/%00", "/api/segment/get/a%20b", "/api/segment/get/%C3%A9", "/api/segment/get/" + strings.Repeat("a", 201),
		"/tinyid/id/nextId", "/tinyid/id/nextId?bizType=t", "/tinyid/id/nextId?bizType=t&token=y", "/tinyid/id/nextId?bizType=t&token=x&batchSize=abc",
		"/tinyid/id/nextSegmentId?token=x", "/tinyid/id/nextSegmentIdSimple?bizType=u&token=x", "/tinyid/id/nextIdSimple?bizType=t%2Fu&token=x", "/tinyid/id/nextId?bizType=%zz&token=%zz",
		"/tinyid/id/nextId?;", "/decodeSnowflakeId", "/decodeSnowflakeId?snowflakeId=",
	} {
		for _, method := range []string{"GET", "POST", "PUT", "DELETE", "PATCH"} {
			if a := s.do(t, method, path, ""); a.status == 404 || a.status == 405 || a.header.Get("X-Request-Id") == "" {
				t.Errorf("%s %.60s: %d %s", method, path, a.status, a.body)
			}
		}
	}
	big := s.do(t, "POST", "/tinyid/id/nextId", "bizType=t&token=x&pad="+strings.Repeat("a", 2000), "Content-Type: application/x-www-form-urlencoded")
	checkProblem(t, big, api.PayloadTooLarge)
	if took != 0 {
		t.Errorf("%d ranges were taken", took)
	}
}
