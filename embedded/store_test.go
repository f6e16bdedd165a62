package embedded

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

func TestOpenReportsAllFaultsOfAConfig(t *testing.T) {
	_, err := Open(Config{MaxBytes: -2})
	if err == nil || !strings.Contains(err.Error(), "MaxBytes -2") {
		t.Fatalf("got %v", err)
	}
}

func TestCloseEndsConnectionsAndMayBeRepeated(t *testing.T) {
	s := open(t, Config{})
	conn, err := s.Dial(t.Context())
	expect.NoError(t, "Dial", err)
	expect.NoError(t, "Close, twice", errors.Join(s.Close(), s.Close()))
	if _, err := conn.Read(make([]byte, 1)); err == nil {
		t.Error("the connection goes on")
	}
	if _, err := s.Dial(t.Context()); !errors.Is(err, net.ErrClosed) {
		t.Errorf("dial after close: %v", err)
	}
}

func TestDialEndsWithItsContext(t *testing.T) {
	s := open(t, Config{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Dial(ctx); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
}

func TestEachStartIsANewIncarnation(t *testing.T) {
	a, b := open(t, Config{}), open(t, Config{})
	expect.Equal(t, "the length of an incarnation", len(a.Incarnation()), 40)
	if a.Incarnation() == b.Incarnation() {
		t.Errorf("got the incarnation %q twice, want another at each start", a.Incarnation())
	}
}

func TestInfoReportsTheIncarnationAlsoInsideAScript(t *testing.T) {
	s := open(t, Config{})
	c := client(t, s)
	want(t, c, "OK", "FLUSHALL")
	replication := "# Replication\r\nrole:master\r\nconnected_slaves:0\r\nmaster_replid:" + s.Incarnation() + "\r\n"
	want(t, c, replication, "INFO", "replication")
	want(t, c, s.Incarnation(), "EVAL", `return string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)')`, 0)
	for _, sections := range [][]any{{}, {"all"}, {"server", "replication"}} {
		if got := do(t, c, append([]any{"INFO"}, sections...)...); !strings.HasSuffix(got, "\r\n"+replication) || !strings.HasPrefix(got, "# Server\r\n") {
			t.Errorf("INFO %v: %q", sections, got)
		}
	}
}

func TestRefusesWhatItCannotKeep(t *testing.T) {
	c := client(t, open(t, Config{}))
	for _, words := range [][]any{
		{"MULTI"}, {"WATCH", "k"}, {"BLPOP", "k", 0}, {"XADD", "k", "*", "f", "v"}, {"XREAD", "BLOCK", 0, "STREAMS", "k", "$"}, {"PFADD", "k", "e"},
		{"HEXPIRE", "k", 10, "FIELDS", 1, "f"}, {"SWAPDB", 0, 1}, {"MOVE", "k", 1}, {"COPY", "a", "b", "DB", 1}, {"SELECT", 1},
		{"SUNIONSTORE", "k", "a", "b"},
	} {
		refused(t, c, "ERR embedded store", words...)
	}
	refused(t, c, "ERR unknown command", "CONFIG", "GET", "*")
	refused(t, c, "ERR embedded store does not offer BLPOP", "EVAL", `return redis.call('BLPOP', KEYS[1], 0)`, 1, "k")
	want(t, c, "OK", "SELECT", 0)
	want(t, c, "0", "DBSIZE")
}

func TestScriptErrorsBeginWithTheCodeOfTheCommandThatFailed(t *testing.T) {
	c := client(t, open(t, Config{}))
	do(t, c, "SET", "text", "x")
	refused(t, c, "WRONGTYPE Operation", "EVAL", `return redis.call('HGET', KEYS[1], 'f')`, 1, "text")
	refused(t, c, "ERR value is not an integer", "EVAL", `return redis.call('INCR', KEYS[1])`, 1, "text")
	refused(t, c, "STALE gone", "EVAL", `return redis.error_reply('STALE gone')`, 0)
	refused(t, c, "ERR Error compiling script", "EVAL", `error('BOOM it is')`, 0)
	refused(t, c, "NOSCRIPT", "EVALSHA", strings.Repeat("0", 40), 0)
	want(t, c, "WRONGTYPE Operation against a key holding the wrong kind of value", "EVAL", `return redis.pcall('HGET', KEYS[1], 'f').err`, 1, "text")
}

func TestAPipelineLongerThanAnyBufferIsAnswered(t *testing.T) {
	c := client(t, open(t, Config{}))
	pipe := c.Pipeline()
	for range 10_000 {
		pipe.Incr(t.Context(), "n")
	}
	if _, err := pipe.Exec(t.Context()); err != nil {
		t.Fatalf("Exec: got error %v, want none", err)
	}
	want(t, c, "10000", "GET", "n")
}

func TestAClientThatSendsNoCommandGetsAnError(t *testing.T) {
	s := open(t, Config{})
	conn, err := s.Dial(t.Context())
	expect.NoError(t, "Dial", err)
	defer conn.Close()
	if _, err := conn.Write([]byte("G")); err != nil {
		t.Fatalf("Write: got error %v, want none", err)
	}
	reply := make([]byte, 100)
	if n, err := conn.Read(reply); err != nil || !strings.HasPrefix(string(reply[:n]), "-ERR Protocol error") {
		t.Fatalf("the answer to a letter: got %q and error %v, want -ERR Protocol error", reply[:n], err)
	}
	if _, err := conn.Read(reply); err == nil {
		t.Error("the connection goes on")
	}
}

func TestASubscriberThatReadsNothingStopsNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, Config{})
		c := client(t, s)
		deaf, err := s.Dial(t.Context())
		expect.NoError(t, "Dial", err)
		if _, err := io.WriteString(deaf, asWritten("SUBSCRIBE", "news")); err != nil {
			t.Fatalf("WriteString: got error %v, want none", err)
		}
		synctest.Wait()
		publish := `for i = 1, 100 do redis.call('PUBLISH', ARGV[1], string.rep('x', 10000)) end return redis.call('PUBLISH', ARGV[1], '')`
		want(t, c, "1", "EVAL", publish, 0, "news")
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		for c.PubSubNumSub(ctx, "news").Val()["news"] == 1 { // until it has too much unread
			expect.NoError(t, "Eval news", c.Eval(ctx, publish, nil, "news").Err())
			synctest.Wait()
		}
	})
}

// A pipeline may get more answers than should stay unread: its client writes all of it before it
// reads.
func TestPipelineOfManyLargeRepliesIsAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const large, replies = 4 << 20, maxUnread/(4<<20) + 2
		s := open(t, Config{})
		do(t, client(t, s), "SET", "large", strings.Repeat("x", large))
		conn, err := s.Dial(t.Context())
		expect.Error(t, "dialing", err, nil)
		defer conn.Close()
		for range replies {
			_, err := io.WriteString(conn, asWritten("GET", "large"))
			expect.Error(t, "sending one more GET while nothing is read", err, nil)
		}
		synctest.Wait()
		want := replies * int64(len(fmt.Sprintf("$%d\r\n", large))+large+2)
		read, err := io.CopyN(io.Discard, conn, want)
		if err != nil {
			t.Fatalf("%d replies of 4 MiB: got %d bytes and error %v, want %d bytes", replies, read, err, want)
		}
	})
}
