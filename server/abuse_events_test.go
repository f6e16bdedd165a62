package server_test

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/server"
)

// A client that is connected and takes nothing, such as one whose machine has gone, does not keep its place: it is dropped as soon as it can not be written to any more.
func TestListenerThatTakesNothingLosesItsPlace(t *testing.T) {
	s := serve(t, server.Config{Store: storetest.Open(t, redisstore.Config{})}, func(s *server.Server) { s.SetPatience(50 * time.Millisecond) })
	for range 3 {
		conn, err := net.Dial("tcp", s.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_ = conn.(*net.TCPConn).SetReadBuffer(4096)
		fmt.Fprintf(conn, "GET /events HTTP/1.1\r\nHost: %s\r\n\r\n", s.addr)
	}
	eventually(t, "all of them listen", func() bool { return s.server.Listeners() == 3 })
	long := strings.Repeat("k", 190)
	for deadline := time.Now().Add(time.Minute); s.server.Listeners() > 0; time.Sleep(time.Millisecond) { // until the operating system takes no more for them
		for i := range 1000 {
			s.server.Tell(fmt.Sprint(long, i))
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d still have a place", s.server.Listeners())
		}
	}
	l := s.listen(t)
	if l.until("hello"); l.status != 200 {
		t.Errorf("%d", l.status)
	}
}
