package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/coatcheck/coatcheck/idempotency"
	"github.com/coatcheck/coatcheck/redisstore"
)

// answerSize is how long the answers are that completed tokens keep.
const answerSize = 200 // bytes

// memoryCommand fills a Redis with tokens in each of their states and sees how it grows, then with
// counters and request ids.
func memoryCommand(ctx context.Context, args []string, _ io.Reader, stdout io.Writer) (err error) {
	flags := flag.NewFlagSet("memory", flag.ContinueOnError)
	many := flags.Int("many", 1_000_000, "tokens; a quarter as many counters and request ids")
	var out output
	out.flags(flags)
	if err := parse(flags, args); err != nil {
		return err
	}
	if *many < 4 {
		return usageError{fmt.Errorf("%d tokens: at least four", *many)}
	}
	t := &table{Title: "memory", When: time.Now().UTC(), Rounds: 1, Columns: []string{"figure", "tokens", "value", "unit"}}
	if t.Machine, err = aboutMachine(ctx); err != nil {
		return err
	}
	if err := grown(ctx, t, *many); err != nil {
		return err
	}
	if err := memoryOfCounters(ctx, t, *many/4); err != nil {
		return err
	}
	return out.write(stdout, t)
}

// grown fills a Redis of its own with tokens.
func grown(ctx context.Context, t *table, size int) (err error) {
	p, err := newPopulation(ctx, size)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.end(ctx)) }()
	return p.grow(ctx, t)
}

// population is a Redis that holds a number of issued tokens.
type population struct {
	redis  *redisServer
	store  *redisstore.Store
	tokens *idempotency.Tokens
	all    []idempotency.Key
	owners []string // of those that are claimed
	empty  float64  // bytes that the empty Redis took
	issued float64  // bytes when all tokens were issued
}

// terms are what all claims are made with: a fingerprint as long as the middleware's.
var terms = idempotency.ClaimOptions{Fingerprint: strings.Repeat("f", 43), Lease: time.Hour}

func newPopulation(ctx context.Context, size int) (p *population, err error) {
	p = &population{all: make([]idempotency.Key, size), owners: make([]string, size)}
	if p.redis, err = startRedis(ctx); err != nil {
		return nil, err
	}
	if p.store, err = redisstore.OpenConfig(ctx, redisstore.Config{URL: p.redis.url(), Timeout: patience}); err != nil {
		p.redis.end()
		return nil, err
	}
	p.tokens = idempotency.New(p.store, idempotency.Config{})
	if err := p.fill(ctx); err != nil {
		return nil, errors.Join(err, p.end(ctx))
	}
	return p, nil
}

// fill issues all tokens. What the server takes for its scripts and for the connections is there
// before it is first looked at.
func (p *population) fill(ctx context.Context) (err error) {
	warm := idempotency.Key{Scope: "warm", ID: "up"}
	if _, err := p.tokens.Do(ctx, warm, terms, func(context.Context, *idempotency.Attempt) ([]byte, error) { return nil, nil }); err != nil {
		return err
	}
	if err := forEach(ctx, func(int) error { return p.store.Ping(ctx) }, 1000); err != nil {
		return err
	}
	if err := p.redis.FlushAll(ctx).Err(); err != nil {
		return err
	}
	if p.empty, err = p.redis.memory(ctx); err != nil {
		return err
	}
	err = forEach(ctx, func(i int) error {
		token, err := p.tokens.Issue(ctx, "", "", 0)
		p.all[i] = idempotency.IssuedToken("", token.Value)
		return err
	}, len(p.all))
	if err != nil {
		return err
	}
	p.issued, err = p.redis.memory(ctx)
	return err
}

// forEach calls f for 0 to n-1, many at a time.
func forEach(ctx context.Context, f func(i int) error, n int) error {
	const workers = 64
	errs := make([]error, workers)
	var running sync.WaitGroup
	for worker := range workers {
		running.Go(func() {
			for i := worker; i < n && errs[worker] == nil && ctx.Err() == nil; i += workers {
				errs[worker] = f(i)
			}
		})
	}
	running.Wait()
	return errors.Join(errors.Join(errs...), ctx.Err())
}

func (p *population) end(ctx context.Context) error {
	err := errors.Join(p.tokens.Close(ctx), p.store.Close())
	p.redis.end()
	return err
}

// grow takes a population through the states of a token, and sees what each takes.
func (p *population) grow(ctx context.Context, t *table) error {
	p.tell(t, "issued", p.issued)
	err := forEach(ctx, func(i int) error {
		outcome, err := p.tokens.Claim(ctx, p.all[i], terms)
		p.owners[i] = outcome.Grant.LeaseToken
		return err
	}, len(p.all))
	if err != nil {
		return err
	}
	used, err := p.redis.memory(ctx)
	if err != nil {
		return err
	}
	p.tell(t, "claimed", used)
	answer := idempotency.Answer{
		Status: http.StatusCreated, Header: http.Header{"Content-Type": {"application/json"}},
		Body: []byte(strings.Repeat("a", answerSize)),
	}
	err = forEach(ctx, func(i int) error { return p.tokens.Complete(ctx, p.all[i], p.owners[i], answer) }, len(p.all))
	if err != nil {
		return err
	}
	if used, err = p.redis.memory(ctx); err != nil {
		return err
	}
	p.tell(t, fmt.Sprintf("completed with %d bytes", answerSize), used)
	return nil
}

// tell adds what a token takes in a state, where Redis uses so much memory.
func (p *population) tell(t *table, state string, used float64) {
	each := (used - p.empty) / float64(len(p.all))
	t.add("a token "+state, len(p.all), each, "bytes")
	t.keep("memory of a token", state, "bytes", []float64{each})
	fmt.Fprintln(os.Stderr, "a token "+state)
}

// memory is how much the server uses, in bytes, without the buffers of its connections.
func (s *redisServer) memory(ctx context.Context) (float64, error) {
	all, err := s.number(ctx, "memory", "used_memory")
	if err != nil {
		return 0, err
	}
	buffers, err := s.number(ctx, "memory", "mem_clients_normal")
	return all - buffers, err
}
