package server_test

import (
	"bufio"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/server"
)

// impostor is a listener that takes commands as Redis does and gives each the same answer, but for
// the greeting, which it does not know, and for INFO. With the answer "" it hangs up.
type impostor struct {
	answer string
	ran    atomic.Int64 // scripts that it was asked to run
}

// start returns the impostor's URL.
func (i *impostor) start(t *testing.T) (url string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	expect.NoError(t, "listening", err)
	var all sync.WaitGroup
	all.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer conn.Close()
				i.serve(conn)
			})
		}
	})
	t.Cleanup(func() {
		listener.Close()
		all.Wait() // the store, which ends before, has closed its connections
	})
	return "redis://" + listener.Addr().String()
}

func (i *impostor) serve(conn net.Conn) {
	commands := bufio.NewReader(conn)
	for {
		name, err := takeCommand(commands)
		say := i.answer
		switch strings.ToLower(name) {
		case "hello", "client":
			say = "-ERR unknown command\r\n"
		// a connection is asked for it before it is used; nothing depends on the answer
		case "info":
			say = "$0\r\n\r\n"
		case "config":
			say = "*0\r\n"
		case "evalsha", "eval":
			i.ran.Add(1)
		}
		if err != nil || say == "" {
			return
		}
		if _, err := io.WriteString(conn, say); err != nil {
			return
		}
	}
}

// takeCommand reads *n, and n times $length and a text, and returns the first.
func takeCommand(from *bufio.Reader) (name string, err error) {
	words, err := number(from, "*")
	for i := range words {
		size, err := number(from, "$")
		if err != nil {
			return "", err
		}
		text := make([]byte, size+2)
		if _, err := io.ReadFull(from, text); err != nil {
			return "", err
		}
		if i == 0 {
			name = string(text[:size])
		}
	}
	return name, err
}

func number(from *bufio.Reader, mark string) (int, error) {
	line, err := from.ReadString('\n')
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(line, mark)))
}

// onImpostor is a service whose store is an impostor. The names in its requests are right in form
// and stand for nothing.
func onImpostor(t *testing.T, i *impostor) *fixture {
	t.Helper()
	store := storetest.Open(t, redisstore.Config{URL: i.start(t), Timeout: storePatience})
	f := &fixture{s: serve(t, server.Config{Store: store, Dev: true})}
	const lease = "AAAAAAAAAAAAAAAAAAAAAA.1767225600000"
	f.fill = strings.NewReplacer("{issued}", "t", "{claimed}", "t", "{lease}", lease, "{w0}", lease, "{w1}", lease)
	return f
}

func TestStoreThatRefusesEverythingIsToldOnEveryEndpoint(t *testing.T) {
	t.Parallel()
	for _, refusal := range []string{
		"LOADING Redis is loading the dataset in memory",
		"READONLY You can't write against a read only replica.",
		"OOM command not allowed when used memory > 'maxmemory'.",
		"MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.",
		"NOREPLICAS Not enough good replicas to write.",
		"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
		"CLUSTERDOWN The cluster is down",
		"BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
		"NOAUTH Authentication required.",
		"NOPERM User default has no permissions to run the 'evalsha' command",
		"ERR max number of clients reached",
	} {
		t.Run(strings.Fields(refusal)[0], func(t *testing.T) {
			f := onImpostor(t, &impostor{answer: "-" + refusal + "\r\n"})
			f.wantUnavailable(t, append(reading, writing...))
			f.s.wantNotReady(t)
		})
	}
}

func TestLostReplyIsAnUnknownOutcomeOfAWriteAndAHarmlessFailureOfARead(t *testing.T) {
	t.Parallel()
	silent := &impostor{}
	f := onImpostor(t, silent)
	for sent, c := range writing {
		if strings.HasSuffix(c.path, "/claim") {
			// one whose lease token the service made is given back in the background
			c.header = []string{"Lease-Token: AAAAAAAAAAAAAAAAAAAAAA"}
		}
		checkProblem(t, f.send(t, c), api.OutcomeUnknown)
		ran, most := silent.ran.Load(), int64(sent+1)
		if c.path == "/payments" {
			most++ // its claim is given back in the background, at once or later
		}
		if ran < int64(sent+1) || ran > most {
			t.Fatalf("%v: got %d scripts for %d requests, want one each: a write was silently repeated", c, ran, sent+1)
		}
		if c.path == "/payments" {
			break // what comes after it would be counted with the giving back
		}
	}
	f.wantUnavailable(t, reading)
	f.s.wantNotReady(t)
}

func TestAnswerThatIsNoneOfOursIsAnUnknownOutcome(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]string{
		"a status": "+OK\r\n", "a number": ":1\r\n", "nothing": "$-1\r\n", "an empty list": "*0\r\n", "a word": "*1\r\n$5\r\nhello\r\n", "a list in a list": "*1\r\n*0\r\n",
		"short": "*1\r\n$2\r\nok\r\n", "no numbers": "*4\r\n$2\r\nok\r\n$1\r\nx\r\n$1\r\nx\r\n$1\r\nx\r\n", "no protocol": "HTTP/1.1 200 OK\r\n\r\n", "an unknown error": "-WEIRD x\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			f := onImpostor(t, &impostor{answer: answer})
			for _, c := range append(reading, writing...) {
				a := f.send(t, c)
				if name == "short" && (a.status == 204 || c.path == "/worker" && a.status == 200) {
					continue // "ok" is all that a release needs to hear, and an empty list is one
				}
				if name == "no numbers" && (a.status == 204 || c.path == "/counter/k" && a.status == 409) {
					continue // nor does it need numbers, and a counter may hold "x"
				}
				a.wantStatus(t, 503)
			}
		})
	}
}
