package main

import (
	"context"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/logtest"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
)

func TestStoppedServiceFinishesWhatItBegan(t *testing.T) {
	redis, file := redistest.Start(t), newFile(t)
	stopping := payments(t, redis.URL(), file, long, beforeCharge)
	first := stopping.later("/payments", payOrder, "Idempotency-Key: order-1")
	stopping.arrived(1)
	code := make(chan int)
	go func() { code <- stopping.stop() }()
	expect.Eventually(t, "it takes no more requests", func() bool {
		_, err := stopping.try("GET", "/accounts", "")
		return err != nil
	})
	stopping.open()
	a := <-first
	if got := <-code; got != done {
		t.Errorf("exit code %d\n%s", got, &stopping.stderr)
	}
	again := payments(t, redis.URL(), file, long, "").ask("POST", "/payments", payOrder, "Idempotency-Key: order-1")
	if a.status != http.StatusCreated || !again.replayed() || again.body != a.body {
		t.Errorf("first %d %s, again %d %s", a.status, a.body, again.status, again.body)
	}
}

func TestServiceOnTheEmbeddedStoreSaysWhatToTry(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var stdout, stderr logtest.Text
	code := make(chan int)
	go func() { code <- run(ctx, []string{"--db", newFile(t), "--listen", "127.0.0.1:0"}, &stdout, &stderr) }()
	expect.Eventually(t, "the banner is there", func() bool { return strings.Contains(stdout.String(), "--crash-at after-commit") })
	url := address.FindString(stdout.String())
	response, err := http.Get(url + "/accounts")
	expect.NoError(t, "GET /accounts", err)
	expect.Equal(t, "the status of GET /accounts", response.StatusCode, http.StatusOK)
	_ = response.Body.Close()
	http.DefaultClient.CloseIdleConnections()
	cancel()
	if got := <-code; got != done {
		t.Errorf("exit code %d: %s", got, &stderr)
	}
}

func TestWrongUsage(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	expect.NoError(t, "a port is taken", err)
	defer taken.Close()
	for _, row := range []struct {
		args string
		code int
		says string
	}{
		{"--help", done, "--redis"},
		{"--no-such-flag", usage, "no-such-flag"},
		{"serve", usage, `unexpected argument "serve"`},
		{"--crash-at lunch", usage, `--crash-at "lunch": before-charge, in-transaction, after-commit`},
		{"--lease 1ms", usage, "--lease 1ms: 100ms to 24h"},
		{"--redis http://localhost", usage, "redis URL"},
		{"--ack 1", usage, "the embedded store has no replicas"},
		{"--lease 1ms --crash-at lunch", usage, "--lease 1ms"},
		{"--db " + filepath.Join(t.TempDir(), "missing", "ledger.db"), failed, "ledger"},
		{"--db " + newFile(t) + " --listen " + taken.Addr().String(), failed, "address already in use"},
	} {
		t.Run(row.args, func(t *testing.T) {
			var stdout, stderr logtest.Text
			if code := run(t.Context(), strings.Fields(row.args), &stdout, &stderr); code != row.code {
				t.Errorf("exit code %d, want %d", code, row.code)
			}
			if !strings.Contains(strings.ReplaceAll(stderr.String(), " -redis", " --redis"), row.says) {
				t.Errorf("it says %q, want %q in it", &stderr, row.says)
			}
		})
	}
}
