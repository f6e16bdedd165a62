package coatcheck_test

import (
	"context"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"log"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/counter"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/limit"
	"github.com/coatcheck/coatcheck/lock"
	"github.com/coatcheck/coatcheck/number"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/snowflake"
	"github.com/coatcheck/coatcheck/workerlease"
)

// Each block of Go in a document is part of a test or an example, line by line: what people copy
// compiles and works.
func TestGoInDocumentsIsRunByATest(t *testing.T) {
	var run []string // the source of every test and example, without indentation
	for _, name := range walk(t, "_test.go") {
		run = append(run, bodies(t, name)...)
	}
	blocks := 0
	for _, name := range documents(t) {
		if name == "CONTRIBUTING.md" { // the outline of a test
			continue
		}
		text, err := os.ReadFile(name)
		expect.NoError(t, "os.ReadFile", err)
		for _, block := range goBlock.FindAllStringSubmatch(string(text), -1) {
			blocks++
			code, runs := "\n"+lines(block[1])+"\n", false
			for _, body := range run {
				runs = runs || strings.Contains(body, code)
			}
			if !runs {
				t.Errorf("%s shows Go that no test runs as it is printed:\n%s", name, block[1])
			}
		}
	}
	if blocks < 8 {
		t.Errorf("%d blocks of Go were found in the documents: does this test still read them?", blocks)
	}
}

func bodies(t *testing.T, name string) (found []string) {
	t.Helper()
	text, err := os.ReadFile(name)
	expect.NoError(t, "os.ReadFile", err)
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, name, text, parser.SkipObjectResolution)
	expect.NoError(t, "parser.ParseFile", err)
	for _, declaration := range file.Decls {
		f, ok := declaration.(*ast.FuncDecl)
		if ok && (strings.HasPrefix(f.Name.Name, "Test") || strings.HasPrefix(f.Name.Name, "Example")) {
			body := text[files.Position(f.Body.Lbrace).Offset+1 : files.Position(f.Body.Rbrace).Offset]
			found = append(found, "\n"+lines(string(body))+"\n")
		}
	}
	return found
}

// onRedis is a store on a private Redis, whose URL is in the environment, as in the documents.
func onRedis(t *testing.T) *redisstore.Store {
	t.Helper()
	t.Setenv("REDIS_URL", redistest.Start(t).URL())
	store, err := redisstore.Open(t.Context(), os.Getenv("REDIS_URL"))
	expect.Error(t, "Open", err, nil)
	t.Cleanup(func() { expect.Error(t, "Close", store.Close(), nil) })
	return store
}

func TestCountersPageWorksOnOneRedis(t *testing.T) {
	ctx := t.Context()
	onRedis(t)
	store, err := redisstore.Open(ctx, os.Getenv("REDIS_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	counters := counter.New(store, counter.Config{})
	defer counters.Close()

	value, err := counters.Incr(ctx, "orders")
	expect.Error(t, "Incr", err, nil)
	expect.Equal(t, "value", value, 1)
	got, err := counters.IncrBy(ctx, "orders", 100) // got.First to got.Value
	expect.Error(t, "IncrBy", err, nil)
	expect.Equal(t, "last of a hundred", got.Last, 101)
	got, err = counters.Add(ctx, "orders", counter.Request{RequestID: "order-4711"})
	expect.Error(t, "Add", err, nil)
	expect.Equal(t, "value with a request id", got.Last, 102)
}

func TestOrderNumbersOfTheCountersPage(t *testing.T) {
	ctx := t.Context()
	counters := counter.New(onRedis(t), counter.Config{})
	defer counters.Close()
	berlin, err := time.LoadLocation("Europe/Berlin")
	expect.Error(t, "LoadLocation", err, nil)
	now := time.Date(2026, 11, 20, 23, 30, 0, 0, time.UTC) // the day after, there

	key, err := number.ParseCalendarKey("orders:{yyyyMMdd}", berlin)
	if err != nil {
		log.Fatal(err)
	}
	name, period, err := key.At(now) // orders:20261121
	if err != nil {
		log.Fatal(err)
	}
	got, err := counters.Add(ctx, name, counter.Request{TTL: period.Until.Sub(now) + 48*time.Hour})

	expect.Error(t, "Add", err, nil)
	expect.Equal(t, "name", name, "orders:20261121")
	expect.Equal(t, "value", got.Last, 1)
}

func TestLimitsPageWorksOnOneRedis(t *testing.T) {
	ctx := t.Context()
	limits := limit.New(onRedis(t), limit.Config{})
	hourly := limit.Rate{N: 10, Per: time.Hour, Burst: 2}
	state, err := limits.Take(ctx, "sms:customer-17", hourly, 1)
	switch {
	case errors.Is(err, limit.ErrReached):
		log.Println("again in", redisstore.RetryAfter(err))
	case err != nil:
		log.Fatal(err)
	default:
		log.Println("left:", state.Remaining)
	}
	expect.Equal(t, "what is left", state.Remaining, 1)
	_, err = limits.Take(ctx, "sms:customer-17", hourly, 2)
	expect.Error(t, "Take of more than is left", err, limit.ErrReached)
}

func TestLocksPageWorksOnOneRedis(t *testing.T) {
	ctx := t.Context()
	store := onRedis(t)
	locks := lock.New(store, lock.Config{})
	defer locks.Close()

	held, err := locks.Acquire(ctx, "report-file", lock.Request{TTL: 10 * time.Second})
	if err != nil {
		log.Fatal(err)
	}
	defer held.Release(ctx)
	work := held.Context() // ends when the lock cannot be counted on any more

	expect.Error(t, "the context of a lock that is held", work.Err(), nil)
}

func TestLockOfTheMigratingPage(t *testing.T) {
	ctx := t.Context()
	locks := lock.New(onRedis(t), lock.Config{})
	defer locks.Close()
	fence := int64(0)
	work := func(_ context.Context, of int64) { fence = of }
	held, err := locks.Acquire(ctx, "report-file", lock.Request{TTL: 10 * time.Second})
	if err != nil {
		log.Fatal(err)
	}
	defer held.Release(ctx)
	work(held.Context(), held.Fence()) // renewed until here; the context ends if the lock is lost

	expect.Equal(t, "fence that the work was given is one", fence > 0, true)
}

func TestWorkersPageWorksOnOneRedis(t *testing.T) {
	ctx := t.Context()
	store := onRedis(t)
	declared := workerlease.New(store, workerlease.Config{}).Create(ctx, "orders", workerlease.Shape{}, 0)
	expect.Error(t, "worker create", declared, nil)

	pools := workerlease.New(store, workerlease.Config{})
	ids, err := pools.Stamp(ctx, "orders", workerlease.Request{Identity: "orders-0"},
		workerlease.HoldOptions{Wait: time.Minute}, snowflake.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer ids.Close(ctx) // gives the worker id back from the last stamp on
	id, err := ids.Next(ctx)

	expect.Error(t, "Next", err, nil)
	layout, epoch, _ := ids.Layout()
	expect.Equal(t, "worker id", layout.Decode(id, epoch).Worker, 0)
}
