package server_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/server"
)

// A client that is connected and takes nothing, such as one whose machine has gone, does not keep
// its place: it is dropped as soon as it cannot be written to any more.
func TestListenerThatTakesNothingLosesItsPlace(t *testing.T) {
	s := serve(t, server.Config{Store: storetest.Open(t, redisstore.Config{})}, func(s *server.Server) { s.SetPatience(50 * time.Millisecond) })
	for range 3 {
		s.dialDeaf(t)
	}
	expect.Eventually(t, "all of them listen", func() bool { return s.server.Listeners() == 3 })
	long := strings.Repeat("k", 190)
	expect.Eventually(t, "none of them has a place", func() bool {
		for i := range 100 { // until the operating system takes no more for them
			s.server.Tell(fmt.Sprint(long, i))
		}
		return s.server.Listeners() == 0
	})
	l := s.listen(t)
	l.until("hello")
	expect.Equal(t, "GET /events after those who did not read: status", l.status, 200)
}
