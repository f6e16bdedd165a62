package noupgrade_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/internal/noupgrade"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// An error is printed and logged, and a server knows the secrets of a request.
func TestErrorsQuoteNothingOfAnAnswer(t *testing.T) {
	for _, says := range []string{"SECRET is no HTTP\r\n\r\n", "HTTP/1.1 200 OK\r\nSECRET\x1b: a\r\n\r\n", "HTTP/1.1 SECRET OK\r\n\r\n"} {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		expect.NoError(t, "Listen", err)
		defer listener.Close()
		go func() {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			defer conn.Close()
			_, _ = http.ReadRequest(bufio.NewReader(conn))
			_, _ = io.WriteString(conn, says)
		}()
		web := &http.Client{Transport: noupgrade.Transport{Next: &http.Transport{}}}
		_, err = web.Get("http://" + listener.Addr().String())
		if err == nil || strings.Contains(err.Error(), "SECRET") {
			t.Errorf("Get, answered %q: got error %v, want one without the answer", says, err)
		}
	}
}

func TestServerThatSwitchesProtocolsIsAnError(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	expect.NoError(t, "Listen", err)
	defer listener.Close()
	ended := make(chan error, 1)
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = http.ReadRequest(bufio.NewReader(conn))
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
		_, err = conn.Read(make([]byte, 1))
		ended <- err
	}()
	web := &http.Client{Transport: noupgrade.Transport{Next: &http.Transport{}}}
	_, err = web.Get("http://" + listener.Addr().String())
	expect.Error(t, "Get", err, noupgrade.ErrSwitched)
	expect.Error(t, "how the connection ends", <-ended, io.EOF)
}
