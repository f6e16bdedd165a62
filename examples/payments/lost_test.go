package main

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/coatcheck/coatcheck/idempotency"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
)

func flush(t testing.TB, redis *redistest.Server) {
	t.Helper()
	expect.NoError(t, "FLUSHALL", redis.Client().FlushAll(context.Background()).Err())
}

// Redis forgets everything between the answer and the retry. With a client's own key nothing is
// left that could refuse the retry: the handler runs again, and only the unique column makes it one
// charge and the same answer.
func TestRetryAfterRedisLostEverythingIsTheSamePayment(t *testing.T) {
	for _, row := range []struct{ path, body, table string }{{"/payments", payOrder, "payments"}, {"/transfers", moveBob, "transfers"}} {
		t.Run(row.table, func(t *testing.T) {
			redis, s := onRedis(t)
			first := s.ask("POST", row.path, row.body, "Idempotency-Key: k")
			balances := s.balances(t)
			flush(t, redis)
			again := s.ask("POST", row.path, row.body, "Idempotency-Key: k")
			if first.status != http.StatusCreated || again.status != http.StatusCreated || again.body != first.body {
				t.Errorf("first %d %s, again %d %s", first.status, first.body, again.status, again.body)
			}
			if again.replayed() {
				t.Error("it came out of Redis: this test has not lost what it was to lose")
			}
			if after := s.balances(t); s.rows(t, row.table) != 1 || after["alice"] != balances["alice"] || after["bob"] != balances["bob"] {
				t.Errorf("balances %v, then %v", balances, after)
			}
			if third := s.ask("POST", row.path, row.body, "Idempotency-Key: k"); !third.replayed() || third.body != first.body {
				t.Errorf("from then on: %d %s", third.status, third.body)
			}
		})
	}
}

// With the fingerprint gone, the ledger's row is what tells that the same key now comes with
// something else.
func TestOtherPayloadAfterRedisLostEverythingIsRefused(t *testing.T) {
	for _, row := range []struct{ path, body, other, table string }{
		{"/payments", payOrder, `{"amount":9999,"to":"alice","reference":"order-1"}`, "payments"},
		{"/transfers", moveBob, `{"from":"bob","to":"alice","amount":500}`, "transfers"},
	} {
		t.Run(row.table, func(t *testing.T) {
			redis, s := onRedis(t)
			first := s.ask("POST", row.path, row.body, "Idempotency-Key: k")
			flush(t, redis)
			if a := s.ask("POST", row.path, row.other, "Idempotency-Key: k"); a.status != 422 || a.code() != "idempotency-payload-mismatch" {
				t.Errorf("another payload: %d %s", a.status, a.body)
			}
			if a := s.ask("POST", row.path, row.body, "Idempotency-Key: k"); a.status != http.StatusCreated || a.body != first.body {
				t.Errorf("the right one: %d %s", a.status, a.body)
			}
			s.balances(t)
			if n := s.rows(t, row.table); n != 1 {
				t.Errorf("%d rows", n)
			}
		})
	}
}

// A token that was issued is refused when Redis has lost it, so that nothing runs, though the
// payment is there for who looks.
func TestTokenThatRedisLostIsRefused(t *testing.T) {
	redis, s := onRedis(t)
	token, err := s.tokens.Issue(t.Context(), "", "payments", 0)
	expect.NoError(t, "Issue of a token", err)
	pay := func() answer { return s.ask("POST", "/payments", payOrder, "Idempotency-Token: "+token.Value) }
	pay().want(t, "POST /payments with a token", http.StatusCreated, "")
	flush(t, redis)
	pay().want(t, "the same after Redis has forgotten it", http.StatusGone, "idempotency-token-unknown")
	if n := s.rows(t, "payments"); n != 1 {
		t.Errorf("%d payments", n)
	}
}

// The commit took effect and its reply was lost. The client hears that the outcome is unknown;
// under takeover the retry finds out, under hold nothing runs.
func TestCommitOfUnknownOutcomeIsToldAndTheRetryFindsOut(t *testing.T) {
	s := embedded(t)
	var lose atomic.Bool
	reliable := s.ledger.db
	s.ledger.db = sql.OpenDB(lossyConnector{reliable.Driver(), source(fileOf(t, s)), &lose})
	expect.NoError(t, "the reliable database is closed", reliable.Close())

	lose.Store(true)
	move := s.ask("POST", "/transfers", moveBob, "Idempotency-Key: k")
	pay := s.ask("POST", "/payments", payOrder, "Idempotency-Key: k")
	lose.Store(false)
	move.want(t, "a transfer whose commit was not answered", 503, "outcome-unknown")
	pay.want(t, "a payment whose commit was not answered", 503, "outcome-unknown")
	if a := s.ask("POST", "/transfers", moveBob, "Idempotency-Key: k"); a.status != http.StatusCreated || a.replayed() {
		t.Errorf("the transfer again: %d %s", a.status, a.body)
	}
	if a := s.ask("POST", "/payments", payOrder, "Idempotency-Key: k"); a.status != http.StatusConflict || a.code() != "idempotency-outcome-unknown" {
		t.Errorf("the payment again: %d %s", a.status, a.body)
	}
	b := s.balances(t)
	expect.Equal(t, "the balance of bob", b["bob"], 10_500)
	expect.Equal(t, "the rows of transfers", s.rows(t, "transfers"), 1)
	expect.Equal(t, "the rows of payments", s.rows(t, "payments"), 1)
}

// When a store that lost its state also has a clock that went back, a new attempt can come with a
// smaller fence than one that was here before. It is refused and writes nothing: that is safe, and
// ends when the clock has caught up.
func TestFenceThatWentBackIsRefusedAndWritesNothing(t *testing.T) {
	s := embedded(t)
	var attempt idempotency.Attempt
	s.ask("POST", "/transfers", moveBob, "Idempotency-Key: k")
	if err := s.ledger.db.QueryRow("SELECT resource, fence FROM fences").Scan(&attempt.Operation, &attempt.Fence); err != nil {
		t.Fatalf("the fence of the transfer: %v", err)
	}
	order := transferOrder{"alice", "bob", 500}
	for _, fence := range []int64{attempt.Fence - 1, attempt.Fence} {
		if _, err := s.ledger.transfer(t.Context(), attempt.Operation, fence, order); !errors.Is(err, errSuperseded) {
			t.Errorf("fence %d after %d: %v", fence, attempt.Fence, err)
		}
	}
	if _, err := s.ledger.transfer(t.Context(), attempt.Operation, attempt.Fence+1, order); err != nil {
		t.Errorf("a larger fence: %v", err)
	}
	b := s.balances(t)
	expect.Equal(t, "the balance of bob", b["bob"], 10_500)
	expect.Equal(t, "the rows of transfers", s.rows(t, "transfers"), 1)
}

// Fences order the attempts of one operation. This is why a fence is stored for each operation and
// not for each account: of two transfers at once the one that was claimed first may well come last,
// and nothing is wrong with that.
func TestOneFenceForAnAccountWouldRefuseARightfulTransfer(t *testing.T) {
	s := embedded(t)
	var earlier, later int64
	for _, row := range []struct {
		key   string
		fence *int64
	}{{"a", &earlier}, {"b", &later}} {
		_, err := s.tokens.Do(t.Context(), idempotency.Key{Scope: "transfers", ID: row.key}, idempotency.ClaimOptions{}, func(ctx context.Context, attempt *idempotency.Attempt) ([]byte, error) {
			*row.fence = attempt.Fence
			return nil, nil
		})
		expect.NoError(t, "the attempt", err)
	}
	raise := func(resource string, fence int64) error {
		return s.ledger.transact(t.Context(), func(ctx context.Context, tx *sql.Tx) error { return raiseFence(ctx, tx, resource, fence) })
	}
	if err := errors.Join(raise("operation b", later), raise("operation a", earlier)); err != nil {
		t.Errorf("a fence for each operation: %v", err)
	}
	expect.NoError(t, "the later fence is raised", raise("account alice", later))
	if err := raise("account alice", earlier); !errors.Is(err, errSuperseded) {
		t.Errorf("a fence for the account: %v", err)
	}
}

// lossyConnector opens connections on which the reply to a commit can get lost.
type lossyConnector struct {
	driver driver.Driver
	source string
	lose   *atomic.Bool
}

func (c lossyConnector) Driver() driver.Driver { return c.driver }

func (c lossyConnector) Connect(context.Context) (driver.Conn, error) {
	conn, err := c.driver.Open(c.source)
	return lossyConn{conn, c.lose}, err
}

type lossyConn struct {
	driver.Conn
	lose *atomic.Bool
}

func (c lossyConn) BeginTx(ctx context.Context, options driver.TxOptions) (driver.Tx, error) {
	tx, err := c.Conn.(driver.ConnBeginTx).BeginTx(ctx, options)
	return lossyTx{tx, c.lose}, err
}

type lossyTx struct {
	driver.Tx
	lose *atomic.Bool
}

func (tx lossyTx) Commit() error {
	if err := tx.Tx.Commit(); err != nil {
		return err
	}
	if tx.lose.Load() {
		return errors.New("the reply was lost")
	}
	return nil
}
