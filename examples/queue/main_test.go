package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/logtest"
	"github.com/coatcheck/coatcheck/internal/testing/proctest"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
)

// kills is how many consumers are killed: go test -run Killed -kills 100.
var kills = flag.Int("kills", 10, "how many consumers are killed")

// asProgram makes the test binary behave as the program, so that a test can kill it.
const asProgram = "QUEUE_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
		stop()
		os.Exit(code)
	}
	goleak.VerifyTestMain(m)
}

// The leases of consumers: short of those that are killed, so that a test need not wait long for
// its end, and long of all others, so that no machine is too slow for it.
const (
	short = "300ms"
	long  = "1h"
)

// start starts a consumer in a process of its own, which ends with the test.
func start(t *testing.T, server *redistest.Server, name, lease string) *proctest.Process {
	t.Helper()
	cmd := exec.Command(os.Args[0], "--redis", server.URL(), "--name", name, "--lease", lease, "--idle", short)
	cmd.Env = append(os.Environ(), asProgram+"=1")
	cmd.Stderr = &logtest.Text{}
	process, err := proctest.Start(cmd, syscall.SIGKILL)
	expect.NoError(t, "the start of the consumer", err)
	t.Cleanup(process.Kill)
	return process
}

// order adds messages to the stream.
func order(t *testing.T, server *redistest.Server, from, n int) {
	t.Helper()
	for i := range n {
		args := &redis.XAddArgs{Stream: stream, Values: []string{"to", fmt.Sprintf("customer-%d", from+i)}}
		expect.NoError(t, "XADD of a message", server.Client().XAdd(t.Context(), args).Err())
	}
}

// settled runs --settle, and returns what it printed.
func settled(t *testing.T, server *redistest.Server) (happened, not int) {
	t.Helper()
	var stdout, stderr logtest.Text
	expect.MustEqual(t, "exit code of --settle", run(t.Context(), []string{"--redis", server.URL(), "--settle"}, &stdout, &stderr), 0)
	if _, err := fmt.Sscanf(stdout.String(), "settled: %d were sent, %d were not", &happened, &not); err != nil {
		t.Fatalf("--settle printed %q: %v", &stdout, err)
	}
	return happened, not
}

// mails are how many mails each customer got.
func mails(t *testing.T, server *redistest.Server) map[string]int {
	t.Helper()
	list, err := server.Client().LRange(t.Context(), sent, 0, -1).Result()
	expect.NoError(t, "LRANGE of what was sent", err)
	got := map[string]int{}
	for _, mail := range list {
		_, to, _ := strings.Cut(mail, " ")
		got[to]++
	}
	return got
}

// pending is how many messages are delivered and not acknowledged, or not delivered yet.
func pending(t *testing.T, server *redistest.Server) int64 {
	t.Helper()
	groups, err := server.Client().XInfoGroups(t.Context(), stream).Result()
	if err != nil || len(groups) != 1 {
		return -1 // no consumer has begun
	}
	return groups[0].Pending + groups[0].Lag
}

// Two consumers, of which one is killed again and again while it works. No mail is sent twice, and
// after the settlement each was sent.
func TestKilledConsumersSendNoMailTwice(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	const each = 40
	orders, happened, not := 0, 0, 0
	survivor := start(t, server, "survivor", long)
	for range *kills {
		// of what is sent before, since on a busy machine all may be sent before the consumer has
		// begun
		target := int64(rand.IntN(each)) + server.Client().LLen(t.Context(), sent).Val()
		order(t, server, orders, each)
		orders += each
		doomed := start(t, server, "doomed", short)
		expect.Eventually(t, "mails are sent", func() bool {
			return server.Client().LLen(t.Context(), sent).Val() >= target || pending(t, server) == 0
		})
		time.Sleep(time.Duration(rand.IntN(5000)) * time.Microsecond)
		doomed.Kill()
	}
	last := start(t, server, "doomed", long)
	expect.Eventually(t, "all is done but for what is settled", func() bool {
		time.Sleep(100 * time.Millisecond)
		h, n := settled(t, server)
		happened, not = happened+h, not+n
		return pending(t, server) == 0
	})
	for _, consumer := range []*proctest.Process{survivor, last} {
		consumer.End(syscall.SIGTERM)
		expect.Equal(t, "error of a consumer that was stopped", consumer.Err(), nil)
	}
	want := map[string]int{}
	for i := range orders {
		want[fmt.Sprintf("customer-%d", i)] = 1
	}
	expect.Equal(t, "mails by customer", mails(t, server), want)
	t.Logf("%d kills, %d messages, %d in doubt: %d had been sent, %d had not", *kills, orders, happened+not, happened, not)
}

// A message that is delivered again after it was done, as after a consumer that died before its
// acknowledgement, is acknowledged and does nothing.
func TestMessageThatComesAgainIsOnlyAcknowledged(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	order(t, server, 0, 3)
	first := start(t, server, "first", long)
	expect.Eventually(t, "all is acknowledged", func() bool { return pending(t, server) == 0 })
	first.End(syscall.SIGTERM)
	// the next one reads all again
	expect.NoError(t, "XGROUP DESTROY", server.Client().XGroupDestroy(t.Context(), stream, group).Err())
	start(t, server, "second", long)
	expect.Eventually(t, "all is acknowledged again", func() bool { return pending(t, server) == 0 })
	expect.Equal(t, "mails by customer", mails(t, server), map[string]int{"customer-0": 1, "customer-1": 1, "customer-2": 1})
}

func TestWrongCommandLineIsRefused(t *testing.T) {
	for args, want := range map[string]int{
		"--lease nonsense": 2, "--redis http://nowhere": 1, "--settle --redis redis://127.0.0.1:1": 1,
	} {
		var stderr logtest.Text
		expect.Equal(t, "exit code of "+args, run(t.Context(), strings.Fields(args), &logtest.Text{}, &stderr), want)
		expect.Equal(t, "whether it says why", stderr.String() != "", true)
	}
}
