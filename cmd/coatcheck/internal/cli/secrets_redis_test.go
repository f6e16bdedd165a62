package cli

import (
	"bufio"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
)

// repeating is a server that answers all with an error that has its words, as a proxy may.
func repeating(t *testing.T) (addr string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	expect.NoError(t, "listen on a free port", err)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() { // until its client closes it
				defer conn.Close()
				heard := ""
				for in := bufio.NewReader(conn); ; {
					words, err := redistest.ReadCommand(in)
					if err != nil {
						return
					}
					heard += strings.Join(words, "|")
					fmt.Fprintf(conn, "-ERR evil *%d|%s\r\n", len(words), heard)
				}
			}()
		}
	}()
	return listener.Addr().String()
}

// Redis quotes the arguments of a command that it does not know, AUTH as well.
func TestPasswordThatARedisRepeatsIsConcealed(t *testing.T) {
	t.Parallel()
	const password = "s3cretpw"
	renamed := redistest.Start(t, "--rename-command", "AUTH", "", "--rename-command", "HELLO", "")
	proxy := repeating(t)
	for _, url := range []string{
		"redis://svc:" + password + "@" + renamed.Addr(),
		"redis://svc:" + password + "@" + proxy,
		"redis+cluster://:" + password + "@" + proxy,
		"redis+sentinel://" + proxy + "/m?sentinel_username=svc&sentinel_password=" + password,
	} {
		for _, args := range [][]string{
			{"doctor"}, {"doctor", "--json"}, {"incr", "orders"}, {"lock", "ls"}, {"serve", "--listen", "127.0.0.1:0"},
		} {
			ran := execute(t, nil, append(args, "--redis", url)...)
			if ran.code == done {
				t.Errorf("%s: got exit code 0, want that of a store that does not work", ran.line)
			}
			lacks(t, "output of "+ran.line, ran.stdout+ran.stderr, password)
		}
	}
}
