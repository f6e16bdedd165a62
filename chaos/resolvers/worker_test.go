//go:build check && linux

package resolvers

import (
	"context"
	"crypto/rand"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	random "math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/coatcheck/coatcheck/chaos/internal/chaostest"
	"github.com/coatcheck/coatcheck/idempotency"
	"github.com/coatcheck/coatcheck/internal/testing/proctest"
	"github.com/coatcheck/coatcheck/internal/testing/sqltest"
)

// What a service in Go does with its payments, by WRONG in its environment.
const (
	right = ""
	looks = "looks" // it has no table of operations: its resolver looks for a payment
)

// runPrimary is a service in Go: a socket, and workers that share it. One that ends is replaced.
func runPrimary() error {
	listener, err := net.Listen("tcp", "127.0.0.1:"+os.Getenv("PORT"))
	if err != nil {
		return err
	}
	socket, err := listener.(*net.TCPListener).File()
	if err != nil {
		return err
	}
	var running sync.WaitGroup
	for range workers {
		running.Go(func() {
			for err == nil {
				command := exec.Command(os.Args[0])
				command.Env = append(os.Environ(), chaostest.RoleVariable+"="+workerRole)
				command.ExtraFiles, command.Stderr = []*os.File{socket}, os.Stderr
				process, failed := proctest.Start(command, syscall.SIGKILL)
				if failed != nil {
					return
				}
				<-process.Done()
			}
		})
	}
	running.Wait()
	return errors.New("no worker can be started")
}

// runWorker serves on the socket that it inherits.
func runWorker() error {
	listener, err := net.FileListener(os.NewFile(3, "socket"))
	if err != nil {
		return err
	}
	w := &worker{wrong: os.Getenv("WRONG")}
	if w.bank, err = openBank(); err != nil {
		return err
	}
	w.limit, err = strconv.Atoi(os.Getenv("LIMIT_MS"))
	if err != nil {
		return err
	}
	w.slow = 15
	if w.wrong != right { // which is found the sooner, the more attempts are late
		w.slow = 2
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /payments", w.pay)
	mux.HandleFunc("PUT /operations/{operation}", w.resolve)
	return http.Serve(listener, mux)
}

// worker is a service's.
type worker struct {
	*bank

	limit int // in milliseconds
	slow  int // one payment of so many takes about as long as the gateway waits
	wrong string
}

func (w *worker) pay(out http.ResponseWriter, r *http.Request) {
	key, _ := io.ReadAll(r.Body)
	operation, fence := named(r)
	wait := random.N(60 * time.Millisecond)
	switch {
	case strings.HasPrefix(string(key), loneMark):
		wait = time.Duration(w.limit) * time.Millisecond / 2
	case random.N(w.slow) > 0:
	case w.wrong == right:
		wait = time.Duration(w.limit-100+random.N(200)) * time.Millisecond
	default: // after the question
		wait = time.Duration(w.limit+random.N(100)) * time.Millisecond
	}
	time.Sleep(wait)
	// the transaction goes on if the gateway hangs up
	answer, err := w.payOrTell(context.WithoutCancel(r.Context()), operation, fence, string(key), w.wrong == looks)
	switch {
	case errors.Is(err, errSuperseded):
		out.Header().Set("Content-Type", "application/problem+json")
		out.WriteHeader(http.StatusConflict)
		_, _ = io.WriteString(out, `{"code": "idempotency-superseded"}`)
		return
	case errors.Is(err, errNotBegun):
		out.Header().Set(idempotency.NotBegunHeader, "true")
		http.Error(out, err.Error(), http.StatusServiceUnavailable)
		return
	case err != nil:
		http.Error(out, err.Error(), http.StatusServiceUnavailable)
		return
	}
	time.Sleep(random.N(40 * time.Millisecond))
	out.Header().Set("Content-Type", "text/plain")
	out.WriteHeader(http.StatusCreated)
	_, _ = io.WriteString(out, answer)
}

func (w *worker) resolve(out http.ResponseWriter, r *http.Request) {
	operation, fence := named(r)
	if r.Header.Get("Idempotency-Resolve") != "true" || operation != r.PathValue("operation") {
		http.NotFound(out, r)
		return
	}
	find := w.close
	if w.wrong == looks {
		find = w.look
	}
	answer, err := find(context.WithoutCancel(r.Context()), operation, fence)
	switch {
	case err != nil:
		http.Error(out, err.Error(), http.StatusServiceUnavailable)
	case !answer.Valid:
		out.Header().Set("Idempotency-Resolution", "not-begun")
		out.WriteHeader(http.StatusNoContent)
	default:
		out.Header().Set("Idempotency-Resolution", "completed")
		out.Header().Set("Content-Type", "text/plain")
		out.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(out, answer.String)
	}
}

func named(r *http.Request) (operation string, fence int64) {
	fence, _ = strconv.ParseInt(r.Header.Get("Idempotency-Fence"), 10, 64) // the table refuses 0
	return r.Header.Get(idempotency.OperationHeader), fence
}

// bank keeps payments in a database, by the recipe.
type bank struct {
	recipe

	db *sql.DB
}

// openBank opens the one that the environment names.
func openBank() (*bank, error) {
	b := &bank{}
	text, err := os.ReadFile(os.Getenv("RECIPE"))
	if err == nil {
		err = json.Unmarshal(text, &b.recipe)
	}
	if err != nil {
		return nil, err
	}
	b.db, err = sqltest.Connect(sqltest.Kind(os.Getenv("SQL_KIND")), os.Getenv("SQL_ADDRESS"), os.Getenv("SQL_DATABASE"))
	if err != nil {
		return nil, err
	}
	b.db.SetMaxIdleConns(16)
	b.db.SetMaxOpenConns(16)
	return b, nil
}

var (
	errSuperseded = errors.New("the operation is closed for this attempt")
	errNotBegun   = errors.New("the payment has not begun")
)

// pay makes a payment, and returns its answer. Any error but the two above says that nobody knows.
func (b *bank) pay(ctx context.Context, operation string, fence int64, key string, looks bool) (string, error) {
	conn, err := b.db.Conn(ctx)
	if err != nil {
		return "", fmt.Errorf("%w: %w", errNotBegun, err)
	}
	defer conn.Close()
	id := rand.Text()
	answer := "paid " + key + " " + id
	if looks {
		// with the operation where the id belongs, so that the resolver can look for it
		id = operation + " " + id
		answer = "paid " + key + " " + id
		_, err := conn.ExecContext(ctx, fmt.Sprintf("INSERT INTO payments (id, client_key) VALUES ('%s', '%s')", id, key))
		return answer, err
	}
	changed := int64(0)
	for _, one := range b.Effect[:len(b.Effect)-1] {
		var result sql.Result
		result, err = conn.ExecContext(ctx, one.SQL, one.values(map[string]any{"operation": operation, "fence": fence, "answer": answer})...)
		if err != nil {
			break
		}
		if changed, err = result.RowsAffected(); err != nil {
			break
		}
	}
	if err == nil && changed == 0 {
		_, err = conn.ExecContext(ctx, "ROLLBACK")
		return "", errors.Join(errSuperseded, err)
	}
	if err == nil {
		_, err = conn.ExecContext(ctx, fmt.Sprintf("INSERT INTO payments (id, client_key) VALUES ('%s', '%s')", id, key))
	}
	if err != nil {
		drop(conn)
		return "", fmt.Errorf("%w: %w", errNotBegun, err)
	}
	time.Sleep(random.N(10 * time.Millisecond))
	if _, err := conn.ExecContext(ctx, b.Effect[len(b.Effect)-1].SQL); err != nil {
		drop(conn)
		return "", err
	}
	return answer, nil
}

// drop closes a connection, whose transaction is rolled back.
func drop(conn *sql.Conn) { _ = conn.Raw(func(any) error { return driver.ErrBadConn }) }

// close closes an operation up to a fence, and returns its answer if it has one.
func (b *bank) close(ctx context.Context, operation string, fence int64) (answer sql.NullString, err error) {
	conn, err := b.db.Conn(ctx)
	if err != nil {
		return answer, err
	}
	defer conn.Close()
	for i, one := range b.Resolver {
		values := one.values(map[string]any{"operation": operation, "fence": fence})
		if i == len(b.Resolver)-2 { // the SELECT
			err = conn.QueryRowContext(ctx, one.SQL, values...).Scan(&answer)
		} else {
			_, err = conn.ExecContext(ctx, one.SQL, values...)
		}
		if err != nil {
			drop(conn)
			return answer, err
		}
	}
	return answer, nil
}

// look is what a resolver must not be: it closes nothing.
func (b *bank) look(ctx context.Context, operation string, _ int64) (sql.NullString, error) {
	return b.find(ctx, "SELECT concat('paid ', client_key, ' ', id) FROM payments WHERE id LIKE '"+operation+"%'")
}

// answerOf is that of an operation, if it has one.
func (b *bank) answerOf(ctx context.Context, operation string) (sql.NullString, error) {
	one := b.Resolver[len(b.Resolver)-2]
	return b.find(ctx, one.SQL, one.values(map[string]any{"operation": operation})...)
}

func (b *bank) find(ctx context.Context, text string, values ...any) (answer sql.NullString, err error) {
	err = b.db.QueryRowContext(ctx, text, values...).Scan(&answer)
	if errors.Is(err, sql.ErrNoRows) {
		return answer, nil
	}
	return answer, err
}

// payOrTell makes a payment, or tells the answer of the one that the operation has had.
func (b *bank) payOrTell(ctx context.Context, operation string, fence int64, key string, looks bool) (string, error) {
	answer, err := b.pay(ctx, operation, fence, key, looks)
	if !errors.Is(err, errSuperseded) {
		return answer, err
	}
	former, failed := b.answerOf(ctx, operation)
	switch {
	case failed != nil:
		return "", fmt.Errorf("%w: %w", errNotBegun, failed)
	case former.Valid:
		return former.String, nil
	}
	return "", err
}
