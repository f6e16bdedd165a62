package server_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/server"
)

// Redis hangs for longer than a call may take, and grants the lock once it goes on: the client was
// told that the outcome is unknown, and nobody has the lease. It is given back, long before its
// TTL.
func TestLockThatWasGrantedToNobodyIsGivenBack(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	s := serve(t, server.Config{Store: storetest.Open(t, redisstore.Config{URL: redis.URL(), Timeout: 500 * time.Millisecond})})
	for n := range 3 {
		path := fmt.Sprint("/lock/hangs-", n)
		s.do(t, "GET", path, "").wantStatus(t, 200)
		redis.Pause()
		answered := s.do(t, "POST", path, `{"ttl_ms":3600000}`)
		redis.Resume()
		answered.wantStatus(t, 503)
		expect.Eventually(t, path+" can be had", func() bool { return s.do(t, "POST", path, `{"ttl_ms":3600000}`).status == 201 })
	}
}
