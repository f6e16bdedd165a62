package redisstore_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/redisstore"
)

// What else WAIT counts, or INFO shows, beside replicas that can become master.

// link is a link for the stream of changes, as replicas and tools have one. It confirms all, or
// nothing.
func link(t *testing.T, master *redistest.Server, port int, confirms bool) (end func()) {
	t.Helper()
	conn, err := net.Dial("tcp", master.Addr())
	expect.MustEqual(t, "error of a connection", err, nil)
	answers := bufio.NewReader(conn)
	_, err = fmt.Fprintf(conn, "REPLCONF listening-port %d\r\n", port)
	expect.MustEqual(t, "error of REPLCONF", err, nil)
	answer, _ := answers.ReadString('\n')
	expect.MustEqual(t, "answer to REPLCONF", answer, "+OK\r\n")
	_, err = fmt.Fprint(conn, "PSYNC ? -1\r\n")
	expect.MustEqual(t, "error of PSYNC", err, nil)
	var running sync.WaitGroup
	running.Go(func() { _, _ = io.Copy(io.Discard, answers) })
	running.Go(func() {
		for err := error(nil); err == nil && confirms; time.Sleep(10 * time.Millisecond) {
			_, err = fmt.Fprint(conn, "REPLCONF ACK 9000000000\r\n")
		}
	})
	end = sync.OnceFunc(func() { conn.Close(); running.Wait() })
	t.Cleanup(end)
	expect.Eventually(t, "it is attached", func() bool {
		text := do(t, master, "INFO", "replication").(string)
		return strings.Contains(text, "state=online,offset=9000000000") ||
			!confirms && strings.Contains(text, fmt.Sprintf(",port=%d,state=online,offset=0,", port))
	})
	return end
}

// Redis counts a tool that reads the stream and confirms it, without a port. It does not stand in
// for a replica that is away.
func TestToolThatConfirmsDoesNotStandInForAReplica(t *testing.T) {
	t.Parallel()
	set := redistest.StartSentinel(t, 1)
	first := open(t, set.URL(), all)
	expect.Eventually(t, "it confirms", func() bool { _, err := bumped(t.Context(), first, "x"); return err == nil })
	link(t, set.Master(), 0, true)
	set.Replicas()[0].Kill()
	away(t, set.Master(), 1)
	_, err := bumped(t.Context(), open(t, set.URL(), all), "x")
	shortfall(t, err, 0, 1)
}

// Sentinels keep a client that copies the data from the master on their lists, without a port. It
// is not waited for, then or later.
func TestCopyThatSentinelsListIsNoReplica(t *testing.T) {
	t.Parallel()
	set := redistest.StartSentinel(t, 1)
	end := link(t, set.Master(), 0, false)
	for _, sentinel := range set.Sentinels() {
		expect.Eventually(t, "it is on the list", func() bool {
			return strings.Contains(fmt.Sprint(do(t, sentinel, "SENTINEL", "REPLICAS", "coatcheck")), "127.0.0.1:0")
		})
	}
	end()
	away(t, set.Master(), 1)
	store := open(t, set.URL(), func(c *redisstore.Config) { c.Ack = redisstore.AckAll })
	mustBump(t, store, "x", 1)
	continuity, err := store.Continuity(t.Context())
	expect.MustEqual(t, "error of Continuity", err, nil)
	expect.Equal(t, "replicas that confirm", continuity.Acks, 1)
}

// A replica that was parted from its master can have two links for a while. Nothing is confirmed
// until the old one has ended: nobody can tell which one is the replica's.
func TestOldLinkOfAReplica(t *testing.T) {
	t.Parallel()
	set := redistest.StartSentinel(t, 1)
	store := open(t, set.URL(), all)
	expect.Eventually(t, "it confirms", func() bool { _, err := bumped(t.Context(), store, "x"); return err == nil })
	_, text, _ := strings.Cut(set.Replicas()[0].Addr(), ":")
	port, err := strconv.Atoi(text)
	expect.MustEqual(t, "error of the port", err, nil)
	end := link(t, set.Master(), port, false)
	_, err = bumped(t.Context(), store, "x")
	shortfall(t, err, 0, 1)
	end()
	away(t, set.Master(), 1)
	expect.Eventually(t, "it confirms again", func() bool { _, err := bumped(t.Context(), store, "x"); return err == nil })
}
