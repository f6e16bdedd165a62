package main

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"time"

	_ "modernc.org/sqlite" // the driver
)

// schema is made anew where it is missing. Amounts are cents of one currency.
const schema = `
CREATE TABLE IF NOT EXISTS accounts (
	id      TEXT PRIMARY KEY,
	balance INTEGER NOT NULL CHECK (balance >= 0)
) STRICT;

-- The operation is the primary key: that is way (a). Rows stay as long as a client may ask again.
CREATE TABLE IF NOT EXISTS payments (
	operation  TEXT PRIMARY KEY,
	id         TEXT NOT NULL UNIQUE,
	account    TEXT NOT NULL REFERENCES accounts (id),
	amount     INTEGER NOT NULL CHECK (amount > 0),
	reference  TEXT NOT NULL,
	charged_at INTEGER NOT NULL -- milliseconds since 1970
) STRICT;

-- A transfer that was refused has its row as well: a refusal is an outcome, and an older attempt must not turn it into another one.
CREATE TABLE IF NOT EXISTS transfers (
	operation TEXT PRIMARY KEY,
	id        TEXT NOT NULL UNIQUE,
	source    TEXT NOT NULL REFERENCES accounts (id),
	target    TEXT NOT NULL REFERENCES accounts (id),
	amount    INTEGER NOT NULL CHECK (amount > 0),
	state     TEXT NOT NULL CHECK (state IN ('done', 'refused')),
	fence     INTEGER NOT NULL,
	moved_at  INTEGER NOT NULL -- milliseconds since 1970
) STRICT;

-- Way (b): the largest fence that each resource has seen. The resource is the operation, since only
-- the fences of one operation are ordered by who came later.
CREATE TABLE IF NOT EXISTS fences (
	resource TEXT PRIMARY KEY,
	fence    INTEGER NOT NULL
) STRICT;

INSERT INTO accounts (id, balance) VALUES ('alice', 10000), ('bob', 10000), ('carol', 10000) ON CONFLICT (id) DO NOTHING;
`

// What a charge can come to beside its row.
var (
	errSuperseded = errors.New("a newer attempt of this operation has been here")
	errUnknown    = errors.New("the commit failed, and may have taken effect")
	errOther      = errors.New("the operation was another request")
	errFunds      = errors.New("insufficient funds")
)

// patience is how long a transaction, or a read, may take in all, and how long it waits for the
// lock of another process.
const (
	patience    = 10 * time.Second
	lockTimeout = 5 * time.Second
)

// ledger keeps accounts, payments and transfers in one SQLite file. It is safe for concurrent use,
// and several processes may open the same file.
type ledger struct {
	db *sql.DB
	at func(step)
}

// openLedger opens the file, and makes it and its tables where they are missing.
func openLedger(ctx context.Context, file string, at func(step)) (*ledger, error) {
	db, err := sql.Open("sqlite", source(file))
	if err != nil {
		return nil, err
	}
	if _, err := db.ExecContext(ctx, schema); err != nil {
		return nil, errors.Join(fmt.Errorf("ledger %s: %w", file, err), db.Close())
	}
	return &ledger{db, at}, nil
}

// source says how the file is opened. A transaction takes the write lock when it begins
// (immediate), so that it never fails half-way because another one was quicker; a commit is on the
// disk when it returns (synchronous full).
func source(file string) string {
	query := url.Values{
		"_pragma": {
			fmt.Sprintf("busy_timeout(%d)", lockTimeout.Milliseconds()), "journal_mode(WAL)", "synchronous(FULL)", "foreign_keys(1)",
		},
		"_txlock": {"immediate"},
	}
	return "file:" + (&url.URL{Path: file}).EscapedPath() + "?" + query.Encode()
}

func (l *ledger) close() error { return l.db.Close() }

// transact runs work in one transaction. The error is errUnknown only if the commit failed; after
// any other nothing has happened.
//
// It does not end with the caller's context. A guarded handler's context ends when its lease can
// have ended; whether another attempt has been here since then the fence knows, and the unique
// column, in the same transaction. To look at the context as well would save work and decide
// nothing.
func (l *ledger) transact(ctx context.Context, work func(context.Context, *sql.Tx) error) error {
	l.at(beforeCharge)
	ctx, cancel := bounded(ctx)
	defer cancel()
	tx, err := l.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // does nothing after a commit
	if err := work(ctx, tx); err != nil {
		return err
	}
	l.at(inTransaction)
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("%w: %w", errUnknown, err)
	}
	l.at(afterCommit)
	return nil
}

func bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), patience)
}

// raiseFence is way (b): it lets the attempt with this fence pass if no newer one has, in the
// transaction of what the attempt is going to do.
func raiseFence(ctx context.Context, tx *sql.Tx, resource string, fence int64) error {
	_, err := tx.ExecContext(ctx, "INSERT INTO fences (resource, fence) VALUES (?, 0) ON CONFLICT (resource) DO NOTHING", resource)
	if err != nil {
		return err
	}
	raised, err := changed(tx.ExecContext(ctx, "UPDATE fences SET fence = ? WHERE resource = ? AND fence < ?", fence, resource, fence))
	if err != nil {
		return err
	}
	if !raised {
		return errSuperseded
	}
	return nil
}

// changed reports whether a statement has inserted or updated a row.
func changed(result sql.Result, err error) (bool, error) {
	if err != nil {
		return false, err
	}
	rows, err := result.RowsAffected()
	return rows > 0, err
}

// newID returns a name that cannot be guessed, such as pay_4GX….
func newID(prefix string) string { return prefix + rand.Text() }

// moment is the time in a ledger's row.
func moment(milliseconds int64) string {
	return time.UnixMilli(milliseconds).UTC().Format("2006-01-02T15:04:05.000Z07:00")
}
