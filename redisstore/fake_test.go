package redisstore_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/redisstore"
)

// fake is a server that speaks as much of Redis's protocol as a store needs, and answers a script
// with what the test says.
type fake struct {
	addr   string
	answer func(words []string) string // to EVALSHA, EVAL and WAIT, as it goes over the wire
	runs   atomic.Int32                // EVALSHA and EVAL
	// the server that it names as the cluster's only one, or as the sentinels' master; "" = itself
	named string

	serving sync.WaitGroup
}

func startFake(t *testing.T, answer func(f *fake, words []string) string) *fake {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	expect.NoError(t, "net.Listen", err)
	f := &fake{addr: listener.Addr().String()}
	t.Cleanup(func() {
		_ = listener.Close()
		f.serving.Wait()
	})
	f.answer = func(words []string) string { return answer(f, words) }
	f.serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			f.serving.Go(func() { f.serve(conn) }) // until the store closes it
		}
	})
	return f
}

func (f *fake) serve(conn net.Conn) {
	defer conn.Close()
	in := bufio.NewReader(conn)
	for {
		words, err := redistest.ReadCommand(in)
		if err != nil {
			return
		}
		if _, err := io.WriteString(conn, f.reply(words)); err != nil {
			return
		}
	}
}

// reply plays a cluster of one and a sentinel as well.
func (f *fake) reply(words []string) string {
	host, port, _ := net.SplitHostPort(f.addr)
	if f.named != "" {
		host, port, _ = net.SplitHostPort(f.named)
	}
	switch strings.ToLower(words[0]) {
	case "evalsha", "eval":
		f.runs.Add(1)
		return f.answer(words)
	case "wait":
		return f.answer(words)
	case "cluster":
		return fmt.Sprintf("*1\r\n*3\r\n:0\r\n:16383\r\n*3\r\n$%d\r\n%s\r\n:%s\r\n$1\r\nx\r\n", len(host), host, port)
	case "sentinel":
		if words[1] == "get-master-addr-by-name" {
			return fmt.Sprintf("*2\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n", len(host), host, len(port), port)
		}
		return "*0\r\n"
	case "asking":
		return "+OK\r\n"
	}
	return "-ERR unknown command\r\n" // HELLO of an old server, too
}

func TestEndlessRedirectsAreRefused(t *testing.T) {
	t.Parallel()
	for _, answer := range []string{"-MOVED 1 %s\r\n", "-ASK 1 %s\r\n", "-TRYAGAIN Multiple keys request during rehashing of slot\r\n", "-NOSCRIPT No matching script.\r\n"} {
		for _, scheme := range []string{"redis://", "redis+cluster://"} {
			server := startFake(t, func(f *fake, _ []string) string { return strings.ReplaceAll(answer, "%s", f.addr) })
			_, err := bumped(t.Context(), open(t, scheme+server.addr, nil), "x")
			refused(t, err)
			if code := strings.Fields(answer[1:])[0]; !strings.Contains(err.Error(), code) {
				t.Errorf("%v does not say %s", err, code)
			}
			if n := server.runs.Load(); n > 5 {
				t.Errorf("%s: the script was sent %d times", answer, n)
			}
		}
	}
}

func TestReplyBeyondAllBoundsIsAnError(t *testing.T) {
	t.Parallel()
	for name, reply := range map[string]string{
		"a long status":          "+" + strings.Repeat("a", 100_000) + "\r\n",
		"a long error":           "-ERR " + strings.Repeat("a", 100_000) + "\r\n",
		"arrays within arrays":   strings.Repeat("*1\r\n", 100) + ":1\r\n",
		"an array of too many":   "*1000001\r\n" + strings.Repeat(":1\r\n", 1_000_001),
		"a string of a gigabyte": "$1073741824\r\n",
	} {
		server := startFake(t, func(*fake, []string) string { return reply })
		_, err := bumped(t.Context(), open(t, "redis://"+server.addr, nil), "x")
		if unknown(t, err); !strings.Contains(err.Error(), "beyond every bound of a Redis") {
			t.Errorf("%s: got error %v, want that of a reply beyond all bounds", name, err)
		}
	}
}

func TestRedirectToAStrangerIsRefused(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"MOVED", "ASK"} {
		server := startFake(t, func(*fake, []string) string { return "-" + kind + " 1 127.0.0.1:1\r\n" })
		_, err := bumped(t.Context(), open(t, "redis+cluster://"+server.addr, nil), "x")
		var stranger *net.AddrError
		if refused(t, err); !errors.As(err, &stranger) {
			t.Errorf("%v does not name the stranger", err)
		}
		expect.Equal(t, "times that the script was sent", server.runs.Load(), 1)
	}
}

func TestAnswersOfOlderServers(t *testing.T) {
	t.Parallel()
	inScript := "-ERR Error running script (call to f_abc): @user_script:1: @user_script: 1: "
	for name, row := range map[string]struct {
		answer string
		class  error
	}{
		"OOM":              {inScript + "-OOM command not allowed when used memory > 'maxmemory'.", redisstore.ErrUnavailable},
		"READONLY":         {inScript + "-READONLY You can't write against a read only replica.", redisstore.ErrUnavailable},
		"NOREPLICAS":       {inScript + "-NOREPLICAS Not enough good replicas to write.", redisstore.ErrUnavailable},
		"MISCONF":          {inScript + "-MISCONF Redis is configured to save RDB snapshots, but it's unable to persist to disk.", redisstore.ErrUnavailable},
		"WRONGTYPE":        {inScript + "WRONGTYPE Operation against a key holding the wrong kind of value", redisstore.ErrWrongType},
		"LOADING":          {"-LOADING Redis is loading the dataset in memory", redisstore.ErrUnavailable},
		"MASTERDOWN":       {"-MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.", redisstore.ErrUnavailable},
		"a script's fault": {inScript + "user_script:1: attempt to index a nil value", redisstore.ErrUnknownOutcome},
		"no protocol":      {"what?", redisstore.ErrUnknownOutcome},
		"half an answer":   {"*2\r\n$2\r\nok", redisstore.ErrUnknownOutcome},
		"a status":         {"+OK", redisstore.ErrUnknownOutcome},
		"a text":           {"$2\r\nok", redisstore.ErrUnknownOutcome},
		"a number":         {":1", redisstore.ErrUnknownOutcome},
		"nothing":          {"$-1", redisstore.ErrUnknownOutcome},
		"an empty list":    {"*0", redisstore.ErrUnknownOutcome},
		"a list in a list": {"*2\r\n$2\r\nok\r\n*1\r\n$1\r\nx", redisstore.ErrUnknownOutcome},
	} {
		t.Run(name, func(t *testing.T) {
			server := startFake(t, func(_ *fake, words []string) string {
				if words[0] == "wait" {
					return ":1\r\n"
				}
				return row.answer + "\r\n"
			})
			store := open(t, "redis://"+server.addr, nil)
			for _, view := range []*redisstore.Store{store, store.WithAck(1)} {
				runs := server.runs.Load()
				_, err := bumped(hurried(t), view, "x")
				for _, class := range []error{redisstore.ErrUnavailable, redisstore.ErrWrongType, redisstore.ErrUnknownOutcome} {
					expect.Equal(t, fmt.Sprintf("%v is %v", err, class), errors.Is(err, class), errors.Is(class, row.class))
				}
				expect.Equal(t, "times that the script was sent", server.runs.Load()-runs, 1)
			}
		})
	}
}

func TestOddAnswersToWaitAreNoAcknowledgement(t *testing.T) {
	t.Parallel()
	for _, answer := range []string{":0\r\n", ":-1\r\n", "+OK\r\n", "$-1\r\n", "*0\r\n", "-OOM it says\r\n", "-ERR WAIT cannot be used with replica instances.\r\n", "-MOVED 1 h:1\r\n"} {
		server := startFake(t, func(_ *fake, words []string) string {
			if words[0] == "wait" {
				return answer
			}
			return "*2\r\n$2\r\nok\r\n$1\r\n1\r\n"
		})
		_, err := bumped(t.Context(), open(t, "redis://"+server.addr, nil).WithAck(1), "x")
		unknown(t, err)
		expect.Equal(t, answer+": times that the script was sent", server.runs.Load(), 1)
	}
}
