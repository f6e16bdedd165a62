package main

import (
	"net/http"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
)

// Under hold an operation whose process was killed is never run again by itself. Whether its row is
// there depends on where it was killed; a client that looks at the payments finds out.
func TestKilledPaymentIsOfUnknownOutcomeAndAtMostOneRow(t *testing.T) {
	for _, row := range []struct {
		at   step
		rows int
	}{{beforeCharge, 0}, {inTransaction, 0}, {afterCommit, 1}} {
		t.Run(string(row.at), func(t *testing.T) {
			redis, file := redistest.Start(t), newFile(t)
			doomed := payments(t, redis.URL(), file, short, "", "--crash-at", string(row.at))
			if a, err := doomed.try("POST", "/payments", payOrder, "Idempotency-Key: order-1"); err == nil {
				t.Fatalf("a process that was to die answered %d %s", a.status, a.body)
			}
			doomed.dies()

			fresh := payments(t, redis.URL(), file, long, "")
			for range 3 {
				fresh.settled("/payments", payOrder, "Idempotency-Key: order-1").want(t, "the payment again", http.StatusConflict, "idempotency-outcome-unknown")
			}
			list := fresh.ask("GET", "/payments", "")
			if n := strings.Count(list.body, `"reference":"order-1"`); n != row.rows {
				t.Errorf("%d payments, want %d: %s", n, row.rows, list.body)
			}
			b := balancesIn(t, reader(t, file))
			expect.Equal(t, "the balance of alice", b["alice"], 10_000+1299*int64(row.rows))
		})
	}
}

// Under takeover the retry runs again, wherever the first attempt was killed, and what it was to do
// is done once.
func TestKilledTransferRunsAgainAndIsDoneOnce(t *testing.T) {
	for _, at := range steps {
		t.Run(string(at), func(t *testing.T) {
			redis, file := redistest.Start(t), newFile(t)
			doomed := payments(t, redis.URL(), file, short, "", "--crash-at", string(at))
			if a, err := doomed.try("POST", "/transfers", moveBob, "Idempotency-Key: move-1"); err == nil {
				t.Fatalf("a process that was to die answered %d %s", a.status, a.body)
			}
			doomed.dies()
			book := reader(t, file)
			var first string
			if n := rowsIn(t, book, "transfers"); n == 1 {
				expect.NoError(t, "the id of the first transfer", book.db.QueryRow("SELECT id FROM transfers").Scan(&first))
			}
			if (first != "") != (at == afterCommit) {
				t.Errorf("after the crash the ledger has %q", first)
			}

			fresh := payments(t, redis.URL(), file, long, "")
			again := fresh.settled("/transfers", moveBob, "Idempotency-Key: move-1")
			if again.status != http.StatusCreated || again.replayed() || !strings.Contains(again.body, first) {
				t.Errorf("the retry: %d %s", again.status, again.body)
			}
			if third := fresh.ask("POST", "/transfers", moveBob, "Idempotency-Key: move-1"); !third.replayed() || third.body != again.body {
				t.Errorf("from then on: %d %s", third.status, third.body)
			}
			b := balancesIn(t, book)
			expect.Equal(t, "the balance of alice", b["alice"], 9_500)
			expect.Equal(t, "the balance of bob", b["bob"], 10_500)
			expect.Equal(t, "the rows of transfers", rowsIn(t, book, "transfers"), 1)
			if code := fresh.stop(); code != done {
				t.Errorf("exit code %d\n%s", code, &fresh.stderr)
			}
		})
	}
}

// The process of the first attempt is stopped for longer than its lease, in its handler, with
// nothing written yet. A second attempt completes. Then the first goes on, knowing nothing.
func TestPausedTransferIsRefusedByTheFenceAndItsClientHearsSuperseded(t *testing.T) {
	redis, file := redistest.Start(t), newFile(t)
	sleeper, other := payments(t, redis.URL(), file, short, beforeCharge), payments(t, redis.URL(), file, long, "")
	first := sleeper.later("/transfers", moveBob, "Idempotency-Key: move-1")
	sleeper.arrived(1)
	sleeper.pause()
	second := other.settled("/transfers", moveBob, "Idempotency-Key: move-1")
	if second.status != http.StatusCreated {
		t.Errorf("the second attempt: %d %s", second.status, second.body)
	}
	sleeper.resume()
	sleeper.open()
	if a := <-first; a.status != http.StatusConflict || a.code() != "idempotency-superseded" {
		t.Errorf("the client of the first attempt: %d %s", a.status, a.body)
	}
	expect.Eventually(t, "the log says that it was the fence", func() bool { return strings.Contains(sleeper.stderr.String(), "the fence refused an attempt") })
	if third := sleeper.ask("POST", "/transfers", moveBob, "Idempotency-Key: move-1"); !third.replayed() || third.body != second.body {
		t.Errorf("from then on: %d %s", third.status, third.body)
	}
	book := reader(t, file)
	b := balancesIn(t, book)
	expect.Equal(t, "the balance of alice", b["alice"], 9_500)
	expect.Equal(t, "the balance of bob", b["bob"], 10_500)
	expect.Equal(t, "the rows of transfers", rowsIn(t, book, "transfers"), 1)
}

// The account had too little when the newer attempt looked, and was topped up before the old one
// woke. The old one must not move what was refused.
func TestPausedTransferCanNotDoWhatANewerAttemptRefused(t *testing.T) {
	redis, file := redistest.Start(t), newFile(t)
	sleeper, other := payments(t, redis.URL(), file, short, beforeCharge), payments(t, redis.URL(), file, long, "")
	const all = `{"from":"alice","to":"bob","amount":10001}`
	first := sleeper.later("/transfers", all, "Idempotency-Key: all")
	sleeper.arrived(1)
	sleeper.pause()
	if a := other.settled("/transfers", all, "Idempotency-Key: all"); a.code() != "insufficient-funds" {
		t.Errorf("the second attempt: %d %s", a.status, a.body)
	}
	other.ask("POST", "/transfers", `{"from":"carol","to":"alice","amount":1}`, "Idempotency-Key: top-up")
	sleeper.resume()
	sleeper.open()
	if a := <-first; a.code() != "idempotency-superseded" {
		t.Errorf("the client of the first attempt: %d %s", a.status, a.body)
	}
	b := balancesIn(t, reader(t, file))
	expect.Equal(t, "the balance of alice", b["alice"], 10_001)
	expect.Equal(t, "the balance of bob", b["bob"], 10_000)
}

// Under hold no attempt takes over, so the paused attempt goes on where it stood, and its answer is
// recorded late.
func TestPausedPaymentGoesOnAndIsMadeOnce(t *testing.T) {
	redis, file := redistest.Start(t), newFile(t)
	sleeper, other := payments(t, redis.URL(), file, short, beforeCharge), payments(t, redis.URL(), file, long, "")
	first := sleeper.later("/payments", payOrder, "Idempotency-Key: order-1")
	sleeper.arrived(1)
	sleeper.pause()
	if a := other.settled("/payments", payOrder, "Idempotency-Key: order-1"); a.code() != "idempotency-outcome-unknown" {
		t.Errorf("meanwhile: %d %s", a.status, a.body)
	}
	sleeper.resume()
	sleeper.open()
	a := <-first
	if again := other.ask("POST", "/payments", payOrder, "Idempotency-Key: order-1"); a.status != http.StatusCreated || !again.replayed() || again.body != a.body {
		t.Errorf("first %d %s, then %d %s", a.status, a.body, again.status, again.body)
	}
	b := balancesIn(t, reader(t, file))
	expect.Equal(t, "the balance of alice", b["alice"], 11_299)
}
