package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coatcheck/coatcheck/idempotency"
	"github.com/coatcheck/coatcheck/redisstore"
)

// answerSize is how long the answers are that completed tokens keep.
const answerSize = 200 // bytes

// memoryCommand fills a Redis with tokens in each of their states and sees how it grows, and claims
// tokens among few and among many.
func memoryCommand(ctx context.Context, args []string, _ io.Reader, stdout io.Writer) (err error) {
	flags := flag.NewFlagSet("memory", flag.ContinueOnError)
	few := flags.Int("few", 1000, "tokens of the small population")
	many := flags.Int("many", 1_000_000, "tokens of the large one")
	rounds := flags.Int("rounds", 15, "rounds of claims, in each of which both populations are asked")
	var out output
	out.flags(flags)
	if err := parse(flags, args); err != nil {
		return err
	}
	if *few < 1 || *many < *few || *rounds < 1 {
		return usageError{fmt.Errorf("%d and %d tokens, %d rounds: at least one each, and the large population is not the smaller one", *few, *many, *rounds)}
	}
	var populations []*population
	defer func() {
		for _, p := range populations {
			err = errors.Join(err, p.end(ctx))
		}
	}()
	for _, size := range []int{*few, *many} {
		p, err := newPopulation(ctx, size)
		if err != nil {
			return err
		}
		populations = append(populations, p)
	}
	machine, err := machine(ctx, populations[0].redis)
	if err != nil {
		return err
	}
	t := &table{
		Title: "memory", When: time.Now().UTC(), Machine: machine, Rounds: *rounds,
		Columns: []string{"figure", "tokens", "value", "middle half", "unit"},
	}
	if err := claimsAmong(ctx, t, populations, *rounds); err != nil {
		return err
	}
	if err := populations[1].grow(ctx, t, ""); err != nil {
		return err
	}
	// of a quarter, hash tables are as full, since their sizes are powers of two
	whole, err := newPopulation(ctx, max(1, *many/4))
	if err != nil {
		return err
	}
	populations = append(populations, whole)
	if err := whole.redis.ConfigSet(ctx, listpack, "1024").Err(); err != nil {
		return err
	}
	if err := whole.grow(ctx, t, ", "+listpack+" 1024"); err != nil {
		return err
	}
	if err := memoryOfCounters(ctx, t, len(whole.all)); err != nil {
		return err
	}
	return out.write(stdout, t)
}

// listpack is the setting of Redis up to which size it keeps a value of a hash in one piece with
// the others.
const listpack = "hash-max-listpack-value"

// population is a Redis that holds a number of issued tokens.
type population struct {
	redis  *redisServer
	store  *redisstore.Store
	tokens *idempotency.Tokens
	all    []idempotency.OperationKey
	owners []string // of those that are claimed
	empty  float64  // bytes that the empty Redis took
	issued float64  // bytes when all tokens were issued
}

// terms are what all claims are made with: a fingerprint as long as the middleware's.
var terms = idempotency.ClaimOptions{Fingerprint: strings.Repeat("f", 43), Lease: time.Hour}

func newPopulation(ctx context.Context, size int) (p *population, err error) {
	p = &population{all: make([]idempotency.OperationKey, size), owners: make([]string, size)}
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
	warm := idempotency.ClientKey("", "warm", "up")
	if _, err := p.tokens.Do(ctx, warm, terms, func(context.Context) ([]byte, error) { return nil, nil }); err != nil {
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

// grow takes a population through the states of a token, and sees what each takes. The rows' names
// end in a note.
func (p *population) grow(ctx context.Context, t *table, note string) error {
	p.tell(t, "issued", note, p.issued)
	err := forEach(ctx, func(i int) error {
		outcome, err := p.tokens.Claim(ctx, p.all[i], terms)
		p.owners[i] = outcome.Grant.Owner
		return err
	}, len(p.all))
	if err != nil {
		return err
	}
	used, err := p.redis.memory(ctx)
	if err != nil {
		return err
	}
	p.tell(t, "claimed", note, used)
	answer := idempotency.Answer{
		Status: http.StatusCreated, Header: http.Header{"Content-Type": {"application/json"}}, Body: []byte(strings.Repeat("a", answerSize)),
	}
	err = forEach(ctx, func(i int) error { return p.tokens.Complete(ctx, p.all[i], p.owners[i], answer, 0) }, len(p.all))
	if err != nil {
		return err
	}
	if used, err = p.redis.memory(ctx); err != nil {
		return err
	}
	p.tell(t, fmt.Sprintf("completed with %d bytes", answerSize), note, used)
	return nil
}

// tell adds what a token takes in a state, where Redis uses so much memory.
func (p *population) tell(t *table, state, note string, used float64) {
	each := (used - p.empty) / float64(len(p.all))
	t.add("a token "+state+note, len(p.all), each, "", "bytes")
	t.keep("memory of a token"+note, state, "bytes", []float64{each})
	fmt.Fprintln(os.Stderr, "a token "+state+note)
}

// claimsAmong claims tokens of both populations in turns, one at a time, and gives them back after
// each round, so that the populations stay as they are.
func claimsAmong(ctx context.Context, t *table, populations []*population, rounds int) error {
	count := len(populations[0].all)
	server, whole := make([][]float64, len(populations)), make([][]float64, len(populations))
	var ratios [2][]float64
	for round := range rounds {
		for i := range populations {
			at := (i + round) % len(populations)
			microseconds, p50, err := populations[at].claims(ctx, count)
			if err != nil {
				return err
			}
			server[at], whole[at] = append(server[at], microseconds), append(whole[at], p50)
		}
		ratios[0] = append(ratios[0], server[1][round]/server[0][round])
		ratios[1] = append(ratios[1], whole[1][round]/whole[0][round])
	}
	for i, p := range populations {
		size := fmt.Sprintf("%d tokens", len(p.all))
		t.keep("a claim, in the server", size, "µs", server[i])
		t.keep("a claim, p50", size, "µs", whole[i])
		t.add("a claim, in the server", len(p.all), median(server[i]), spread(server[i]), "µs")
		t.add("a claim, p50", len(p.all), median(whole[i]), spread(whole[i]), "µs")
	}
	between := fmt.Sprintf("%d / %d", len(populations[1].all), len(populations[0].all))
	t.add("a claim, in the server", between, median(ratios[0]), spread(ratios[0]), "ratio")
	t.add("a claim, p50", between, median(ratios[1]), spread(ratios[1]), "ratio")
	return nil
}

// claims takes tokens that are picked by lot, and tells what one took in the server and from here,
// in microseconds.
func (p *population) claims(ctx context.Context, count int) (server, p50 float64, err error) {
	picked := rand.Perm(len(p.all))[:count] //nolint:gosec // which tokens are claimed is no secret
	took := make([]time.Duration, count)
	if err := p.redis.ConfigResetStat(ctx).Err(); err != nil {
		return 0, 0, err
	}
	for i, at := range picked {
		begun := time.Now()
		outcome, err := p.tokens.Claim(ctx, p.all[at], terms)
		took[i] = time.Since(begun)
		if err != nil || !outcome.Granted {
			return 0, 0, fmt.Errorf("claim of an issued token: %+v, %w", outcome, err)
		}
		p.owners[at] = outcome.Grant.Owner
	}
	if server, err = p.redis.timeOfScripts(ctx); err != nil {
		return 0, 0, err
	}
	slices.Sort(took)
	err = forEach(ctx, func(i int) error { return p.tokens.Release(ctx, p.all[picked[i]], p.owners[picked[i]]) }, count)
	return server, percentile(took, 0.50), err
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
