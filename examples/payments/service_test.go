package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

func TestPaymentIsMadeOnceAndItsAnswerReplayed(t *testing.T) {
	s := embedded(t)
	first := s.ask("POST", "/payments", payOrder, "Idempotency-Key: order-1")
	again := s.ask("POST", "/payments", payOrder, "Idempotency-Key: order-1")
	if first.status != http.StatusCreated || first.replayed() || !strings.Contains(first.body, `"id":"pay_`) {
		t.Errorf("first: %d %v %s", first.status, first.header, first.body)
	}
	if again.status != http.StatusCreated || !again.replayed() || again.body != first.body {
		t.Errorf("again: %d %v %s", again.status, again.header, again.body)
	}
	if other := s.ask("POST", "/payments", payOrder, "Idempotency-Key: order-2"); other.status != http.StatusCreated || other.body == first.body {
		t.Errorf("with another key: %d %s", other.status, other.body)
	}
	b := s.balances(t)
	expect.Equal(t, "the balance of alice", b["alice"], 10_000+2*1299)
	expect.Equal(t, "the rows of payments", s.rows(t, "payments"), 2)
	var names int
	if err := s.ledger.db.QueryRow("SELECT count(*) FROM payments WHERE length(operation) = 32 AND operation NOT LIKE '%order%'").Scan(&names); err != nil || names != 2 {
		t.Errorf("%d operations are named by 32 characters without the key: %v", names, err)
	}
	list := s.ask("GET", "/payments", "")
	if list.status != http.StatusOK || !strings.HasPrefix(list.body, `{"total":2,"payments":[{"id":"pay_`) || !strings.Contains(list.body, strings.TrimSpace(first.body)) {
		t.Errorf("the list: %d %s", list.status, list.body)
	}
}

func TestTransferIsMadeOnceAndItsAnswerReplayed(t *testing.T) {
	s := embedded(t)
	first := s.ask("POST", "/transfers", moveBob, "Idempotency-Key: move-1")
	again := s.ask("POST", "/transfers", moveBob, "Idempotency-Key: move-1")
	if first.status != http.StatusCreated || again.status != http.StatusCreated || again.body != first.body || !again.replayed() {
		t.Errorf("first %d %s, again %d %s", first.status, first.body, again.status, again.body)
	}
	b := s.balances(t)
	expect.Equal(t, "the balance of alice", b["alice"], 9_500)
	expect.Equal(t, "the balance of bob", b["bob"], 10_500)
	if list := s.ask("GET", "/accounts", ""); list.body != `{"sum":30000,"accounts":[{"id":"alice","balance":9500},{"id":"bob","balance":10500},{"id":"carol","balance":10000}]}`+"\n" {
		t.Errorf("the accounts: %s", list.body)
	}
}

func TestRefusedTransferStaysRefused(t *testing.T) {
	redis, s := onRedis(t)
	const all = `{"from":"alice","to":"bob","amount":10001}`
	refused := func(what string, replayed bool) {
		t.Helper()
		a := s.ask("POST", "/transfers", all, "Idempotency-Key: all")
		a.want(t, "a transfer of too much, "+what, http.StatusConflict, "insufficient-funds")
		expect.Equal(t, what+": the answer is replayed", a.replayed(), replayed)
	}
	refused("first", false)
	refused("again", true)
	// Now there would be enough, but the operation has had its outcome, even if Redis has forgotten
	// it.
	s.ask("POST", "/transfers", `{"from":"carol","to":"alice","amount":1}`, "Idempotency-Key: top-up")
	refused("after the account was topped up", true)
	flush(t, redis)
	refused("after Redis has forgotten it", false)
	b := s.balances(t)
	expect.Equal(t, "the balance of alice", b["alice"], 10_001)
	expect.Equal(t, "the balance of bob", b["bob"], 10_000)
	if a := s.ask("POST", "/transfers", all, "Idempotency-Key: all-2"); a.status != http.StatusCreated {
		t.Errorf("a new transfer: %d %s", a.status, a.body)
	}
	b = s.balances(t)
	expect.Equal(t, "the balance of alice", b["alice"], 0)
	expect.Equal(t, "the balance of bob", b["bob"], 20_001)
}

func TestFiftyPaymentsAtOnceOverTwoServicesAreOneRow(t *testing.T) {
	redis, one := onRedis(t)
	services := []*service{one, inProcess(t, redis.URL(), fileOf(t, one))}
	for _, row := range []struct{ path, body, table string }{{"/payments", payOrder, "payments"}, {"/transfers", moveBob, "transfers"}} {
		answers := make([]answer, 50)
		var all sync.WaitGroup
		for i := range answers {
			all.Go(func() { answers[i] = services[i%2].ask("POST", row.path, row.body, "Idempotency-Key: one") })
		}
		all.Wait()
		last := one.ask("POST", row.path, row.body, "Idempotency-Key: one")
		if last.status != http.StatusCreated || !last.replayed() {
			t.Errorf("%s afterwards: %d %s", row.path, last.status, last.body)
		}
		for _, a := range answers {
			if a.body != last.body && a.code() != "idempotency-in-progress" {
				t.Errorf("one of fifty POST %s: got %d %s, want %s, or that it is in progress", row.path, a.status, a.body, last.body)
			}
		}
		if n := one.rows(t, row.table); n != 1 {
			t.Errorf("%d rows in %s", n, row.table)
		}
	}
	b := one.balances(t)
	expect.Equal(t, "the balance of alice", b["alice"], 10_000+1299-500)
	expect.Equal(t, "the balance of bob", b["bob"], 10_500)
}

// Each row is a request that is refused before anything has begun: nothing is moved, and the same
// key is good for the corrected one.
func TestRefusedRequestsMoveNothingAndLeaveTheKeyFree(t *testing.T) {
	s := embedded(t)
	for _, row := range []struct{ path, body, code, detail string }{
		{"/payments", ``, "invalid-request", "body: a JSON object belongs here"},
		{"/payments", `[]`, "invalid-request", "body: a JSON object belongs here"},
		{"/payments", `{"amount":1`, "invalid-request", "body: not one JSON object: unexpected EOF"},
		{"/payments", `{"amount":1,}`, "invalid-request", "body: not one JSON object: invalid character '}'"},
		{"/payments", payOrder + `{}`, "invalid-request", "body: one JSON object belongs here, and nothing after it"},
		{"/payments", "{\"amount\":1,\"to\":\"alice\xff\",\"reference\":\"r\"}", "invalid-request", "body: not UTF-8"},
		{"/payments", `{"amount":1,"to":"alice","reference":"r\ud83d"}`, "invalid-request", "reference: half of a surrogate pair"},
		{"/payments", `{"amount":1,"to":"alice"}`, "invalid-request", "reference: missing"},
		{"/payments", `{"amount":1,"amount":2,"to":"alice","reference":"r"}`, "invalid-request", "amount: given more than once"},
		{"/payments", `{"Amount":1,"to":"alice","reference":"r"}`, "invalid-request", "body: an unknown member; this route takes amount, to, reference"},
		{"/payments", `{"amount":"1","to":"alice","reference":"r"}`, "invalid-request", "amount: not a whole number"},
		{"/payments", `{"amount":1.5,"to":"alice","reference":"r"}`, "invalid-request", "amount: not a whole number"},
		{"/payments", `{"amount":99999999999999999999,"to":"alice","reference":"r"}`, "invalid-request", "amount: not a whole number"},
		{"/payments", `{"amount":null,"to":"alice","reference":"r"}`, "invalid-request", "amount: 1 to 1000000000 cents"},
		{"/payments", `{"amount":0,"to":"alice","reference":"r"}`, "invalid-request", "amount: 1 to 1000000000 cents"},
		{"/payments", `{"amount":-5,"to":"alice","reference":"r"}`, "invalid-request", "amount: 1 to 1000000000 cents"},
		{"/payments", `{"amount":1000000001,"to":"alice","reference":"r"}`, "invalid-request", "amount: 1 to 1000000000 cents"},
		{"/payments", `{"amount":1,"to":7,"reference":"r"}`, "invalid-request", "to: not a string"},
		{"/payments", `{"amount":1,"to":"Alice","reference":"r"}`, "invalid-request", "to: 1 to 40 characters"},
		{"/payments", `{"amount":1,"to":"alice","reference":"two words"}`, "invalid-request", "reference: 1 to 60 characters"},
		{"/payments", `{"amount":1,"to":"mallory","reference":"r"}`, "unknown-account", "GET /accounts"},
		{"/payments?dry=1", payOrder, "invalid-request", "query: this route takes no parameters"},
		{"/transfers", `{"from":"alice","to":"bob"}`, "invalid-request", "amount: missing"},
		{"/transfers", `{"from":"","to":"bob","amount":1}`, "invalid-request", "from: 1 to 40 characters"},
		{"/transfers", `{"from":"alice","to":"../bob","amount":1}`, "invalid-request", "to: 1 to 40 characters"},
		{"/transfers", `{"from":"alice","to":"alice","amount":1}`, "invalid-request", "to: another account"},
		{"/transfers", `{"from":"mallory","to":"bob","amount":1}`, "unknown-account", "GET /accounts"},
		{"/transfers", `{"from":"alice","to":"mallory","amount":1}`, "unknown-account", "GET /accounts"},
	} {
		t.Run(row.path+" "+row.body, func(t *testing.T) {
			a := s.ask("POST", row.path, row.body, "Idempotency-Key: k")
			expect.Equal(t, "the class of the status", a.status/100, 4)
			expect.Equal(t, "the problem's code", a.code(), row.code)
			expect.Equal(t, "Content-Type", a.header.Get("Content-Type"), "application/problem+json")
			expect.Contains(t, "the problem", a.body, row.detail)
		})
	}
	if s.rows(t, "payments") != 0 || s.rows(t, "transfers") != 0 || s.rows(t, "fences") != 0 {
		t.Error("something was written")
	}
	if a := s.ask("POST", "/payments", payOrder, "Idempotency-Key: k"); a.status != http.StatusCreated {
		t.Errorf("the corrected payment: %d %s", a.status, a.body)
	}
	if a := s.ask("POST", "/transfers", moveBob, "Idempotency-Key: k"); a.status != http.StatusCreated {
		t.Errorf("the corrected transfer: %d %s", a.status, a.body)
	}
}

func TestTheMiddlewaresRefusalsAreProblems(t *testing.T) {
	s := embedded(t)
	s.ask("POST", "/payments", payOrder, "Idempotency-Key: used")
	for _, row := range []struct {
		name, body, header, code string
		status                   int
	}{
		{"no header", payOrder, "Accept: */*", "idempotency-key-missing", 400},
		{"malformed key", payOrder, "Idempotency-Key: a, b", "idempotency-key-malformed", 400},
		{"another payload", `{"amount":1,"to":"alice","reference":"order-1"}`, "Idempotency-Key: used", "idempotency-payload-mismatch", 422},
		{"token that nobody issued", payOrder, "Idempotency-Token: made-up", "idempotency-token-unknown", 410},
		{"body too large", strings.Repeat(" ", maxBody) + payOrder, "Idempotency-Key: large", "payload-too-large", 413},
	} {
		t.Run(row.name, func(t *testing.T) {
			s.ask("POST", "/payments", row.body, row.header).want(t, "POST /payments", row.status, row.code)
		})
	}
	if n := s.rows(t, "payments"); n != 1 {
		t.Errorf("%d payments", n)
	}
}

func TestOtherPathsAndMethodsAreProblems(t *testing.T) {
	s := embedded(t)
	for _, row := range []struct {
		method, path, code, allow string
		status                    int
	}{
		{"GET", "/", "not-found", "", 404},
		{"POST", "/refunds", "not-found", "", 404},
		{"DELETE", "/payments", "method-not-allowed", "GET, HEAD, POST", 405},
		{"GET", "/transfers", "method-not-allowed", "POST", 405},
		{"POST", "/accounts", "method-not-allowed", "GET, HEAD", 405},
		{"GET", "/accounts?page=2", "invalid-request", "", 400},
	} {
		a, asked := s.ask(row.method, row.path, ""), row.method+" "+row.path
		a.want(t, asked, row.status, row.code)
		expect.Equal(t, asked+": Allow", a.header.Get("Allow"), row.allow)
		expect.Equal(t, asked+": Content-Type", a.header.Get("Content-Type"), "application/problem+json")
	}
}

func TestLedgerThatFailsIsAClearRefusalAndTheKeyStaysGood(t *testing.T) {
	s := embedded(t)
	rename := func(from, to string) {
		t.Helper()
		_, err := s.ledger.db.Exec("ALTER TABLE " + from + " RENAME TO " + to)
		expect.NoError(t, "the table "+from+" is renamed", err)
	}
	rename("payments", "gone")
	if a := s.ask("POST", "/payments", payOrder, "Idempotency-Key: k"); a.status != 503 || a.code() != "ledger-unavailable" || a.header.Get("Retry-After") != "1" {
		t.Errorf("while it fails: %d %v %s", a.status, a.header, a.body)
	}
	if a := s.ask("GET", "/payments", ""); a.status != 503 || a.code() != "ledger-unavailable" {
		t.Errorf("the list while it fails: %d %s", a.status, a.body)
	}
	rename("gone", "payments")
	if a := s.ask("POST", "/payments", payOrder, "Idempotency-Key: k"); a.status != http.StatusCreated || a.replayed() {
		t.Errorf("then: %d %s", a.status, a.body)
	}
	b := s.balances(t)
	expect.Equal(t, "the balance of alice", b["alice"], 11_299)
}

func TestLedgerOpensFilesWithOddNamesAndTwice(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a b?c#d%20e&f.db")
	for range 2 {
		l, err := openLedger(t.Context(), file, func(step) {})
		expect.NoError(t, "the ledger is opened", err)
		var mode string
		var synchronous, keys, wait int
		row := l.db.QueryRow("SELECT journal_mode, synchronous, foreign_keys, timeout FROM pragma_journal_mode, pragma_synchronous, pragma_foreign_keys, pragma_busy_timeout")
		if err := row.Scan(&mode, &synchronous, &keys, &wait); err != nil || mode != "wal" || synchronous != 2 || keys != 1 || wait != 5000 {
			t.Errorf("journal %s, synchronous %d, foreign keys %d, busy timeout %d: %v", mode, synchronous, keys, wait, err)
		}
		if balancesIn(t, l)["alice"] != 10_000 {
			t.Error("the accounts were opened twice")
		}
		expect.NoError(t, "the ledger is closed", l.close())
	}
	if _, err := os.Stat(file); err != nil {
		t.Errorf("the ledger's file is there: %v", err)
	}
}

// SQLite refuses a transaction that has read and then wants to write when another one has written
// in between. Ours wait for their turn before they read.
func TestTransactionsThatReadFirstAreNotRefusedHalfWay(t *testing.T) {
	s := embedded(t)
	const times = 10 // each waits for its turn for 5 s at most, however busy the machine is
	errs := make([]error, times)
	var all sync.WaitGroup
	for i := range errs {
		all.Go(func() {
			errs[i] = s.ledger.transact(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
				var balance int
				if err := tx.QueryRowContext(ctx, "SELECT balance FROM accounts WHERE id = 'alice'").Scan(&balance); err != nil {
					return err
				}
				_, err := tx.ExecContext(ctx, "UPDATE accounts SET balance = ? WHERE id = 'alice'", balance-1)
				return err
			})
		})
	}
	all.Wait()
	var balance int
	expect.NoError(t, "the balance of alice", s.ledger.db.QueryRow("SELECT balance FROM accounts WHERE id = 'alice'").Scan(&balance))
	if err := errors.Join(errs...); err != nil || balance != 10_000-times {
		t.Errorf("balance %d, %v", balance, err)
	}
}

// A balance cannot go below zero, whatever the code does.
func TestLedgerRefusesANegativeBalance(t *testing.T) {
	s := embedded(t)
	err := s.ledger.transact(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "UPDATE accounts SET balance = -1 WHERE id = 'alice'")
		return err
	})
	expect.Contains(t, "a balance of -1: the error", fmt.Sprint(err), "CHECK")
}
