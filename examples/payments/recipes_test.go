package main

import (
	"context"
	"database/sql"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/coatchecktest"
	"github.com/coatcheck/coatcheck/idempotency"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// TestRecipesForSQLiteDoWhatTheySay runs the statements of docs/effects.md as they stand there.
func TestRecipesForSQLiteDoWhatTheySay(t *testing.T) {
	page, err := os.ReadFile("../../docs/effects.md")
	expect.NoError(t, "docs/effects.md is read", err)
	_, section, _ := strings.Cut(string(page), "### SQLite\n")
	section, _, _ = strings.Cut(section, "\n### ")
	blocks := regexp.MustCompile("(?s)```sql\n(.*?)```").FindAllStringSubmatch(section, -1)
	if len(blocks) != 3 {
		t.Fatalf("%d recipes, want the tables, (a) and (b)", len(blocks))
	}
	db, err := sql.Open("sqlite", source(newFile(t)))
	expect.NoError(t, "the database is opened", err)
	defer db.Close()
	if _, err := db.Exec(blocks[0][1] + "INSERT INTO accounts VALUES ('alice', 0)"); err != nil {
		t.Fatalf("the tables of the recipe are made: %v", err)
	}

	unique := statements(blocks[1][1])
	if len(unique) != 5 {
		t.Fatalf("got the statements %q, want five of recipe (a)", unique)
	}
	pay := func(id string) string { return runUnique(t, db, unique, id) }
	if first, again := pay("one"), pay("two"); first != "one" || again != "one" {
		t.Errorf("first %q, again %q", first, again)
	}
	var balance int
	if err := db.QueryRow("SELECT balance FROM accounts").Scan(&balance); err != nil || balance != 500 {
		t.Errorf("balance %d, %v", balance, err)
	}

	fence := statements(blocks[2][1])
	if len(fence) != 4 {
		t.Fatalf("got the statements %q, want four of recipe (b)", fence)
	}
	for _, row := range []struct {
		fence int
		pass  bool
	}{{5, true}, {4, false}, {5, false}, {6, true}} {
		if pass := runFence(t, db, fence, row.fence); pass != row.pass {
			t.Errorf("fence %d: %v", row.fence, pass)
		}
	}
}

// TestRecipeOfOperationsIsAResolver runs the table of operations of docs/effects.md.
func TestRecipeOfOperationsIsAResolver(t *testing.T) {
	page, err := os.ReadFile("../../docs/effects.md")
	expect.NoError(t, "docs/effects.md is read", err)
	_, section, _ := strings.Cut(string(page), "### A table of operations\n")
	section, _, _ = strings.Cut(section, "\n### ")
	blocks := regexp.MustCompile("(?s)```sql\n(.*?)```").FindAllStringSubmatch(section, -1)
	if len(blocks) != 3 {
		t.Fatalf("%d recipes, want the table, the effect and the resolver", len(blocks))
	}
	db, err := sql.Open("sqlite", source(newFile(t)))
	expect.NoError(t, "the database is opened", err)
	defer db.Close()
	if _, err := db.Exec(blocks[0][1] + "CREATE TABLE effects (operation TEXT NOT NULL)"); err != nil {
		t.Fatalf("the table of the recipe is made: %v", err)
	}
	r := operations{t, db, statements(blocks[1][1]), statements(blocks[2][1])}
	coatchecktest.CheckResolver(t, coatchecktest.ResolverCase{Attempt: r.attempt, Resolve: r.resolve, Effects: r.effects, Races: 100})
}

// operations does what the comments of the recipe say.
type operations struct {
	t                *testing.T
	db               *sql.DB
	effect, resolver []string
}

func (o operations) attempt(ctx context.Context, operation string, fence int64, begun func()) error {
	begun()
	conn, err := o.db.Conn(ctx)
	expect.NoError(o.t, "a connection", err)
	defer conn.Close()
	args := []any{sql.Named("operation", operation), sql.Named("fence", fence), sql.Named("answer", "paid")}
	for i, statement := range o.effect {
		if i == 2 {
			_, err = conn.ExecContext(ctx, "INSERT INTO effects VALUES (?)", operation)
			expect.NoError(o.t, "the effect", err)
		}
		is, err := changed(conn.ExecContext(ctx, statement, args...))
		expect.NoError(o.t, statement, err)
		if i == 1 && !is {
			_, err = conn.ExecContext(ctx, "ROLLBACK")
			expect.NoError(o.t, "ROLLBACK", err)
			return errSuperseded
		}
	}
	return nil
}

func (o operations) resolve(ctx context.Context, about idempotency.Operation) (said idempotency.Resolution, err error) {
	conn, err := o.db.Conn(ctx)
	expect.NoError(o.t, "a connection", err)
	defer conn.Close()
	args := []any{sql.Named("operation", about.Name), sql.Named("fence", about.Fence)}
	var answer sql.NullString
	for i, statement := range o.resolver {
		if i == 2 {
			err = conn.QueryRowContext(ctx, statement, args...).Scan(&answer)
		} else {
			_, err = conn.ExecContext(ctx, statement, args...)
		}
		expect.NoError(o.t, statement, err)
	}
	if !answer.Valid {
		return idempotency.Resolution{Decision: idempotency.DecisionNotBegun}, nil
	}
	return idempotency.Resolution{Decision: idempotency.DecisionHappened, Answer: idempotency.Answer{Status: 201, Body: []byte(answer.String)}}, nil
}

func (o operations) effects(ctx context.Context, operation string) (n int, err error) {
	err = o.db.QueryRowContext(ctx, "SELECT count(*) FROM effects WHERE operation = ?", operation).Scan(&n)
	return n, err
}

var comment = regexp.MustCompile(`(?m)^--.*\n`)

func statements(text string) (list []string) {
	for statement := range strings.SplitSeq(comment.ReplaceAllString(text, ""), ";") {
		if statement = strings.TrimSpace(statement); statement != "" {
			list = append(list, statement)
		}
	}
	return list
}

// runUnique does what the comments of recipe (a) say, and returns the id that the operation has.
func runUnique(t *testing.T, db *sql.DB, recipe []string, id string) (found string) {
	t.Helper()
	conn, err := db.Conn(t.Context())
	expect.NoError(t, "a connection", err)
	defer conn.Close()
	var account string
	var amount int
	args := []any{sql.Named("operation", "op"), sql.Named("id", id), sql.Named("account", "alice"), sql.Named("amount", 500)}
	for i, statement := range recipe {
		switch {
		case i == 2 && id != "one": // the row was there
		case i == 3:
			if err := conn.QueryRowContext(t.Context(), statement, args...).Scan(&found, &account, &amount); err != nil {
				t.Fatalf("%s: got error %v", statement, err)
			}
		default:
			inserted, err := changed(conn.ExecContext(t.Context(), statement, args...))
			if err != nil {
				t.Fatalf("%s: got error %v", statement, err)
			}
			if i == 1 && inserted != (id == "one") {
				t.Errorf("%s: inserted %v for %q", statement, inserted, id)
			}
		}
	}
	return found
}

// runFence does what the comments of recipe (b) say, and reports whether the attempt may have its
// effect.
func runFence(t *testing.T, db *sql.DB, recipe []string, fence int) (pass bool) {
	t.Helper()
	conn, err := db.Conn(t.Context())
	expect.NoError(t, "a connection", err)
	defer conn.Close()
	args := []any{sql.Named("operation", "op"), sql.Named("fence", fence)}
	for i, statement := range recipe {
		if i == 3 && !pass {
			statement = "ROLLBACK"
		}
		raised, err := changed(conn.ExecContext(t.Context(), statement, args...))
		if err != nil {
			t.Fatalf("%s: got error %v", statement, err)
		}
		if i == 2 {
			pass = raised
		}
	}
	return pass
}

// What the page claims it proves by naming tests. They are all here.
func TestThePageNamesTestsThatExist(t *testing.T) {
	page, err := os.ReadFile("../../docs/effects.md")
	expect.NoError(t, "docs/effects.md is read", err)
	files, err := filepath.Glob("*_test.go")
	expect.NoError(t, "the tests are listed", err)
	var code strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		expect.NoError(t, "a test's file is read", err)
		code.Write(text)
	}
	names := regexp.MustCompile(`\bTest[A-Z]\w+`).FindAllString(string(page), -1)
	if len(names) < 10 {
		t.Errorf("the page names %d tests", len(names))
	}
	for _, name := range names {
		if !strings.Contains(code.String(), "\nfunc "+name+"(t *testing.T) {") {
			t.Errorf("there is no %s", name)
		}
	}
}
