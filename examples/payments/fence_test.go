package main

import (
	"database/sql"
	"path/filepath"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/lock"
	"github.com/coatcheck/coatcheck/redisstore"
)

// A holder that was paused past its lease writes after the next one has: the row's fence refuses
// it. A holder may write more than once.
func TestCheckFenceSQLRefusesAPausedHolder(t *testing.T) {
	ctx := t.Context()
	store, err := redisstore.Open(ctx, "embedded:")
	expect.NoError(t, "the embedded store is opened", err)
	defer store.Close()
	locks := lock.New(store, lock.Config{})
	defer locks.Close()
	db, err := sql.Open("sqlite", filepath.Join(t.TempDir(), "accounts.db"))
	expect.NoError(t, "the database is opened", err)
	defer db.Close()
	if _, err := db.ExecContext(ctx, "CREATE TABLE account (id TEXT PRIMARY KEY, balance INTEGER, fence INTEGER NOT NULL DEFAULT 0); INSERT INTO account VALUES ('ann', 100, 0)"); err != nil {
		t.Fatalf("the table of accounts is made: %v", err)
	}
	write := func(who string, balance int, fence, want int64) {
		t.Helper()
		result, err := db.ExecContext(ctx, lock.CheckFenceSQL(lock.PlaceholderQuestion, "account", "id", "balance"), balance, fence, "ann", fence)
		expect.NoError(t, "an update that checks its fence", err)
		n, err := result.RowsAffected()
		expect.Error(t, who, err, nil)
		expect.Equal(t, "rows that "+who+" writes", n, want)
	}

	// it is not renewed, as if its process were paused
	paused, err := locks.TryGrant(ctx, "ann", lock.Request{TTL: lock.MinTTL})
	expect.NoError(t, "TryGrant of ann", err)
	next, err := locks.Acquire(ctx, "ann", lock.Request{}) // waits until the lease has ended
	expect.NoError(t, "Acquire of ann after the lease's end", err)
	defer next.Release(ctx)
	write("the next holder", 70, next.Fence(), 1)
	write("the paused holder", 130, paused.Fence, 0)
	write("the next holder again", 60, next.Fence(), 1)
	balance := 0
	expect.Error(t, "reading the balance", db.QueryRowContext(ctx, "SELECT balance FROM account").Scan(&balance), nil)
	expect.Equal(t, "the balance", balance, 60)
}
