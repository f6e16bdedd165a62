package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/coatcheck/coatcheck/internal/onstore"
	"github.com/coatcheck/coatcheck/redisstore"
)

// incrMatch is a running comparison of services that count.
type incrMatch struct {
	plan    plan
	binary  string // of the service
	redis   *redisServer
	sides   []incrSide
	missing []string // why a side is not measured
	result  *table
}

// incrSide is one service. Each is a process of its own.
type incrSide struct {
	name string
	addr string
	path string              // before a counter's name
	key  func(string) string // in Redis; nil = it does not use it
	end  func() error
}

// The services that the incr command compares.
const (
	echoConstant   = "echo, no Redis" // an atomic addition in the place of Redis
	echoCounters   = "echo + package counter"
	echoMiddleware = "echo + package counter + middleware" // Echo's own, see useMiddleware
	webdisService  = "webdis"
)

// incrCommand compares GET /incr/{key} of the service with what others make of it.
func incrCommand(ctx context.Context, args []string, _ io.Reader, stdout io.Writer) (err error) {
	flags := flag.NewFlagSet("incr", flag.ContinueOnError)
	m := &incrMatch{}
	m.plan.flags(flags, "1,64,256")
	flags.StringVar(&m.binary, "service", "", "the coatcheck program that is measured; built from this source if empty")
	if err := m.plan.parse(flags, args); err != nil {
		return err
	}
	remove, err := m.build(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	if m.redis, err = startRedis(ctx); err != nil {
		return err
	}
	defer m.redis.end()
	about, err := machine(ctx, m.redis)
	if err != nil {
		return err
	}
	m.result = &table{
		Title: "incr", When: time.Now().UTC().Truncate(time.Second), Rounds: m.plan.rounds, Seconds: m.plan.seconds, Machine: about,
		Columns: []string{"keys", "connections", "side", "requests/s", "p50 µs", "p99 µs", "x constant", "x package counter", "x webdis",
			"middle half of the first", "load"},
	}
	if err := m.incr(ctx); err != nil {
		return err
	}
	m.result.Notes = append(m.result.Notes, "x: requests a second to those of that side, in the same round. load: the machine's load "+
		"average of a minute, after the last round.")
	m.result.Notes = append(m.result.Notes, m.missing...)
	return m.plan.out.write(stdout, m.result)
}

// keysOfMany is how many keys the requests go to where they do not all go to one.
const keysOfMany = 1000

// incr measures GET /incr/{key} on one key and on many.
func (m *incrMatch) incr(ctx context.Context) (err error) {
	defer func() {
		for _, side := range m.sides {
			err = errors.Join(err, side.end())
		}
	}()
	if err := m.start(ctx); err != nil {
		return err
	}
	for _, keys := range []int{1, keysOfMany} {
		for _, conns := range m.plan.conns {
			if err := m.turns(ctx, keys, conns); err != nil {
				return fmt.Errorf("%d keys, %d connections: %w", keys, conns, err)
			}
		}
	}
	return nil
}

// build makes the service's program if none was named, and returns how to remove it.
func (m *incrMatch) build(ctx context.Context) (remove func() error, err error) {
	if m.binary != "" {
		return func() error { return nil }, nil
	}
	folder, err := os.MkdirTemp("", "coatcheck-bench-")
	if err != nil {
		return nil, err
	}
	remove = func() error { return os.RemoveAll(folder) }
	m.binary = filepath.Join(folder, "coatcheck")
	build := exec.CommandContext(ctx, "go", "build", "-C", "..", "-o", m.binary, "./cmd/coatcheck") //nolint:gosec // its folder is our own
	if out, err := build.CombinedOutput(); err != nil {
		return nil, errors.Join(fmt.Errorf("building the service: %w: %s; name one that is built with -service", err, out), remove())
	}
	return remove, nil
}

// start starts every service that can be had.
func (m *incrMatch) start(ctx context.Context) error {
	store, err := redisstore.Open(ctx, m.redis.url())
	if err != nil {
		return err
	}
	ours := func(name string) string { return onstore.Key(store, "counter", name) }
	if err := store.Close(); err != nil { // it was only to tell how keys are called
		return err
	}
	for _, side := range []incrSide{
		{name: echoConstant}, {name: echoCounters, key: ours}, {name: echoMiddleware, key: ours},
	} {
		server, err := startServer(ctx, "serve-incr", "-side", side.name, "-redis", m.redis.url())
		if err != nil {
			return err
		}
		side.addr, side.path, side.end = server.addr, "/incr/", server.stop
		m.sides = append(m.sides, side)
	}
	service, end, err := startService(ctx, m.binary, m.redis.url())
	if err != nil {
		return err
	}
	m.sides = append(m.sides, incrSide{name: coatcheck, addr: service, path: "/incr/", key: ours, end: end})
	binary, _ := exec.LookPath("webdis")
	if binary == "" {
		m.missing = append(m.missing, "webdis is not installed, and was not measured; apt-get install -y webdis installs it.")
		return nil
	}
	webdis, err := startWebdis(ctx, binary, m.redis.addr)
	if err == nil {
		m.sides = append(m.sides, webdis)
	}
	return err
}

// turns measures every service in each round; another one begins each time.
func (m *incrMatch) turns(ctx context.Context, keys, conns int) error {
	samples := map[string][]loadResult{}
	for round := range m.plan.rounds {
		for i := range m.sides {
			side := m.sides[(i+round)%len(m.sides)]
			result, err := m.measure(ctx, side, keys, conns)
			if err != nil {
				return fmt.Errorf("%s: %w", side.name, err)
			}
			samples[side.name] = append(samples[side.name], result)
		}
	}
	for _, side := range m.sides {
		m.row(side.name, keys, conns, samples)
	}
	fmt.Fprintf(os.Stderr, "incr: %d keys, %d connections\n", keys, conns)
	return nil
}

// measure is one span of load on one service, and a check that Redis has counted every request
// once.
func (m *incrMatch) measure(ctx context.Context, side incrSide, keys, conns int) (result loadResult, err error) {
	names := counterNames(keys)
	sum := func() (int64, error) {
		if side.key == nil {
			return 0, nil
		}
		return m.redis.sum(ctx, counting{key: side.key}, names)
	}
	before, err := sum()
	if err != nil {
		return result, err
	}
	if result, err = m.plan.get(ctx, "-addr", side.addr, "-path", side.path+names[0], "-keys", strconv.Itoa(keys),
		"-conns", strconv.Itoa(conns)); err != nil {
		return result, err
	}
	after, err := sum()
	if added := int(after - before); err == nil && side.key != nil && added != result.Sent {
		err = fmt.Errorf("%d requests have added %d", result.Sent, added)
	}
	return result, err
}

// get runs the generator of GET requests.
func (p *plan) get(ctx context.Context, args ...string) (result loadResult, err error) {
	args = append([]string{"get", "-span", p.span().String(), "-warm", min(p.span(), 200*time.Millisecond).String()}, args...)
	generator, err := again(ctx, args...)
	if err != nil {
		return result, err
	}
	defer generator.end()
	line, err := generator.line()
	if err != nil {
		return result, err
	}
	return result, json.Unmarshal([]byte(line), &result)
}

func (m *incrMatch) row(name string, keys, conns int, samples map[string][]loadResult) {
	rates := func(side string) []float64 {
		return fields(samples[side], func(r loadResult) float64 { return float64(r.Measured) / r.Seconds })
	}
	middle := func(of func(loadResult) float64) float64 { return median(fields(samples[name], of)) }
	m.result.keep(fmt.Sprintf("keys: %d, connections: %d", keys, conns), name, "requests/s", rates(name))
	m.result.keep(fmt.Sprintf("keys: %d, connections: %d, median", keys, conns), name, "µs",
		fields(samples[name], func(r loadResult) float64 { return r.P50 }))
	row := []any{keys, conns, name, median(rates(name)), middle(func(r loadResult) float64 { return r.P50 }),
		middle(func(r loadResult) float64 { return r.P99 })}
	for _, to := range []string{echoConstant, echoCounters, webdisService} {
		if len(samples[to]) == 0 {
			row = append(row, "")
			continue
		}
		row = append(row, median(ratios(rates(name), rates(to))))
	}
	m.result.add(append(row, spread(ratios(rates(name), rates(echoConstant))), loadAverage())...)
}

func fields(results []loadResult, of func(loadResult) float64) []float64 {
	all := make([]float64, len(results))
	for i, result := range results {
		all[i] = of(result)
	}
	return all
}
