package gateway

import (
	"fmt"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// Bodies that have not come whole count, and what does not fit in beside them is refused before
// the upstream hears of it.
func TestRequestsBeyondTheMemoryAreToldSo(t *testing.T) {
	upstream := newShop(t, nil)
	s := serve(t, upstream.URL, payments, func(c *Config) { c.MaxBytes = 1 << 20 })
	holder := s.dial()
	say(holder, "POST /payments HTTP/1.1\r\nHost: x\r\nIdempotency-Key: a\r\nContent-Length: 450000\r\n\r\n"+strings.Repeat("a", 449_999))
	expect.Eventually(t, "the body is in memory", func() bool { return s.g.door.BytesInFlight() == 2*449_999 })
	large := strings.Repeat("b", 100_000)
	a := s.do("POST", "/payments", large, "Idempotency-Key: b")
	s.wantCode(a, api.Overloaded)
	expect.Equal(t, "Retry-After", a.header.Get("Retry-After"), "1")
	for i := range 3 { // of 32 KiB each
		a = s.do("POST", "/open", fmt.Sprint(i))
	}
	expect.Equal(t, "POST /open with a small body", a.status, 201)
	upstream.wantPaid(t, 3)
	holder.Close()
	expect.Eventually(t, "the memory is given back", func() bool { return s.g.door.BytesInFlight() == 0 })
	s.wantStatus(s.do("POST", "/payments", large, "Idempotency-Key: b"), 201)
	s.wantEnd()
}
