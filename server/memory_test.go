package server_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/server"
)

// What does not fit into memory beside what is under way is refused, and nothing is done.
func TestRequestsBeyondTheMemoryAreToldSo(t *testing.T) {
	t.Parallel()
	s := listen(t, server.Config{Store: storetest.Open(t, redisstore.Config{}), Dev: true, MaxBytes: 2 << 20})
	holder := s.connect(t)
	_, _ = io.WriteString(holder, "POST /token HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n"+strings.Repeat(" ", 999_999))
	inFlight := func() float64 { return readFigures(t, string(s.do(t, "GET", "/metrics", "").body))["in_flight_bytes"] }
	expect.Eventually(t, "the body is in memory", func() bool { return inFlight() == 2*999_999 })
	for _, path := range []string{"/token", "/payments", "/token/x/claim"} {
		a := s.do(t, "POST", path, strings.Repeat(" ", 100_000), "Idempotency-Key: k")
		checkProblem(t, a, api.Overloaded)
		expect.Equal(t, a.asked+": Retry-After", a.header.Get("Retry-After"), "1")
	}
	checkProblem(t, s.do(t, "GET", "/id/uuid?n=10000", ""), api.Overloaded)
	s.do(t, "POST", "/incr/k", "").wantStatus(t, http.StatusOK)
	expect.Equal(t, "payments", s.ledger(t).Total, 0)
	holder.Close()
	expect.Eventually(t, "the memory is given back", func() bool { return inFlight() == 0 })
	s.do(t, "POST", "/token", strings.Repeat(" ", 100_000)).wantStatus(t, http.StatusCreated)
}

// A form is read before the caller is known, so it is small.
func TestFormsOfTheDoorsAreSmall(t *testing.T) {
	t.Parallel()
	s := onTinyid(t, leafRow("test", 2, 100_000))
	form := "Content-Type: application/x-www-form-urlencoded"
	padded := func(size int) string {
		text := tinyidTest + "&batchSize=1&padding="
		return text + strings.Repeat("a", size-len(text))
	}
	for _, path := range []string{"/tinyid/id/nextId", "/tinyid/id/nextIdSimple", "/decodeSnowflakeId"} {
		if a := s.do(t, "POST", path, padded(8<<10), form); a.status == http.StatusRequestEntityTooLarge {
			t.Errorf("%v; a form of 8 KiB is refused, want it taken", a)
		}
		a := s.do(t, "POST", path, padded(8<<10+1), form)
		expect.Equal(t, a.asked+": detail", checkProblem(t, a, api.PayloadTooLarge).Detail, "the limit is 8192 bytes")
	}
}
