package main

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
)

// Payments whose process was killed, some before their charge and some after it: the job gets all
// out of doubt, and each account is charged once.
func TestJobSettlesWhatTheLedgerKnows(t *testing.T) {
	redis, file := redistest.Start(t), newFile(t)
	crashes := []step{beforeCharge, inTransaction, afterCommit, afterCommit, beforeCharge}
	for i, at := range crashes {
		doomed := payments(t, redis.URL(), file, short, "", "--crash-at", string(at))
		if a, err := doomed.try("POST", "/payments", payOrder, fmt.Sprintf("Idempotency-Key: order-%d", i)); err == nil {
			t.Fatalf("a process that was to die answered %d %s", a.status, a.body)
		}
		doomed.dies()
	}
	s := inProcess(t, redis.URL(), file)
	settled := 0
	expect.Eventually(t, "all operations are out of doubt", func() bool {
		n, err := s.settle(t.Context())
		expect.Error(t, "settle", err, nil)
		settled += n
		return settled == len(crashes)
	})
	expect.Equal(t, "rows of payments before any repeat", s.rows(t, "payments"), 2)
	for i, at := range crashes {
		a := s.ask("POST", "/payments", payOrder, fmt.Sprintf("Idempotency-Key: order-%d", i))
		expect.Equal(t, fmt.Sprintf("order-%d, killed %s: status and whether it is a replay", i, at), []any{a.status, a.replayed()}, []any{http.StatusCreated, at == afterCommit})
		again := s.ask("POST", "/payments", payOrder, fmt.Sprintf("Idempotency-Key: order-%d", i))
		expect.Equal(t, fmt.Sprintf("order-%d again: body", i), again.body, a.body)
	}
	expect.Equal(t, "rows of payments", s.rows(t, "payments"), len(crashes))
	expect.Equal(t, "the balance of alice", s.balances(t)["alice"], 10_000+1299*int64(len(crashes)))
}
