package redistest_test

import (
	"errors"
	"net"
	"os"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
)

func TestProxyOnWhichNothingComesThroughKeepsConnections(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.StartProxy(t, server.Addr(), nil)
	dial := func() net.Conn {
		t.Helper()
		conn, err := net.Dial("tcp", proxy.Addr())
		expect.NoError(t, "a connection to the proxy", err)
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	send := func(conn net.Conn, command string) {
		t.Helper()
		if _, err := conn.Write([]byte(command + "\r\n")); err != nil {
			t.Fatalf("%s: %v", command, err)
		}
	}
	reply := make([]byte, 64)
	hears := func(conn net.Conn, within time.Duration) (string, error) {
		_ = conn.SetReadDeadline(time.Now().Add(within)) // of an open connection
		n, err := conn.Read(reply)
		return string(reply[:n]), err
	}
	is := func(key string) bool { return server.Client().Exists(t.Context(), key).Val() == 1 }

	old := dial()
	send(old, "SET a 1")
	if answer, err := hears(old, time.Minute); answer != "+OK\r\n" {
		t.Fatalf("before anything is broken: got %q, %v", answer, err)
	}

	proxy.SwallowAnswers()
	for key, conn := range map[string]net.Conn{"b": old, "c": dial()} {
		send(conn, "SET "+key+" 1")
		expect.Eventually(t, key+" is set", func() bool { return is(key) })
		if answer, err := hears(conn, 100*time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("SET %s: got the answer %q, %v; want none, and the connection to stay", key, answer, err)
		}
	}

	proxy.Swallow()
	for key, conn := range map[string]net.Conn{"d": old, "e": dial()} {
		send(conn, "SET "+key+" 1")
		if answer, err := hears(conn, 100*time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) || is(key) {
			t.Errorf("SET %s: it is set: %t, and got the answer %q, %v; want neither, and the connection to stay", key, is(key), answer, err)
		}
	}

	proxy.Close()
	if _, err := hears(old, time.Minute); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("after Close: the connection is open (%v)", err)
	}
	if conn, err := net.Dial("tcp", proxy.Addr()); err == nil {
		_ = conn.Close()
		t.Error("after Close: there are new connections")
	}
}
