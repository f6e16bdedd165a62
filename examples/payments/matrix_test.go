package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/coatcheck/coatcheck/idempotency"
	"github.com/coatcheck/coatcheck/redisstore"
)

// protection is a column of the table in docs/effects.md: what stands between an operation and its
// second effect.
type protection struct {
	name   string // of the route
	policy idempotency.Policy
	unique bool // the effect has the operation in a unique column
	fence  bool // the effect's transaction raises the operation's fence
}

var protections = []protection{
	{"hold", idempotency.PolicyHold, false, false},
	{"hold-unique", idempotency.PolicyHold, true, false},
	{"takeover", idempotency.PolicyTakeover, false, false},
	{"takeover-fence", idempotency.PolicyTakeover, false, true},
	{"takeover-unique", idempotency.PolicyTakeover, true, false},
	{"takeover-both", idempotency.PolicyTakeover, true, true},
}

// effects is where the operations of one protection have their effect: each row is one time that it
// happened. They have a file each, so that one that is held up in its transaction does not hold up
// the others.
const effects = `CREATE TABLE IF NOT EXISTS effects (
	id        TEXT PRIMARY KEY,
	operation TEXT UNIQUE -- NULL where the column is not to be unique: any number of rows may have it
) STRICT`

func openEffects(ctx context.Context, dir string, p protection, at func(step)) (*ledger, error) {
	l, err := openLedger(ctx, filepath.Join(dir, p.name+".db"), at)
	if err != nil {
		return nil, err
	}
	if _, err := l.db.ExecContext(ctx, effects); err != nil {
		return nil, errors.Join(err, l.close())
	}
	return l, nil
}

// have lets the effect happen, unless the protection finds that it has, and returns the id that it
// has.
func (p protection) have(ctx context.Context, l *ledger, attempt *idempotency.Attempt) (id string, err error) {
	err = l.transact(ctx, func(ctx context.Context, tx *sql.Tx) error {
		if p.fence {
			if err := raiseFence(ctx, tx, attempt.Operation, attempt.Fence); err != nil {
				return err
			}
		}
		id = newID("effect_")
		if !p.unique {
			_, err := tx.ExecContext(ctx, "INSERT INTO effects (id) VALUES (?)", id)
			return err
		}
		_, err := tx.ExecContext(ctx, "INSERT INTO effects (id, operation) VALUES (?, ?) ON CONFLICT (operation) DO NOTHING", id, attempt.Operation)
		if err != nil {
			return err
		}
		return tx.QueryRowContext(ctx, "SELECT id FROM effects WHERE operation = ?", attempt.Operation).Scan(&id)
	})
	return id, err
}

// runMatrix is a program with a route for each protection. Its arguments are the store's URL, a
// directory, the lease and the acknowledgement.
func runMatrix(ctx context.Context) int {
	if err := serveMatrix(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return failed
	}
	return done
}

func serveMatrix(ctx context.Context, args []string) error {
	lease, err := time.ParseDuration(args[2])
	if err != nil {
		return err
	}
	ack, err := strconv.Atoi(args[3])
	if err != nil {
		return err
	}
	store, err := redisstore.OpenConfig(ctx, redisstore.Config{URL: args[0], Ack: ack})
	if err != nil {
		return err
	}
	tokens := idempotency.New(store, idempotency.Config{})
	service := &service{log: slog.New(slog.NewTextHandler(os.Stderr, nil))}
	mux := http.NewServeMux()
	for _, p := range protections {
		l, err := openEffects(ctx, args[1], p, gateFromEnv())
		if err != nil {
			return err
		}
		guard := tokens.Middleware(idempotency.Route{Name: p.name, Policy: p.policy, Lease: lease})
		mux.Handle("POST /"+p.name, guard(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			attempt, _ := idempotency.FromContext(r.Context())
			id, err := p.have(r.Context(), l, attempt)
			if err != nil {
				service.refuse(w, r, err)
				return
			}
			_, _ = io.WriteString(w, id)
		})))
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Printf("http://%s\n", listener.Addr())
	return http.Serve(listener, mux) // until it is killed
}
