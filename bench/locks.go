package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"sync"
	"time"
)

// lockMatch is a running comparison of ways to lock, or of others that take turns.
type lockMatch struct {
	redis  *redisServer
	result *table
	rounds int
	span   time.Duration
	out    output
}

// beginMatch reads the flags of a comparison, to which more adds, and starts its Redis, which the
// caller ends.
func beginMatch(ctx context.Context, name string, args []string, rounds int, more ...func(*flag.FlagSet)) (*lockMatch, error) {
	m := &lockMatch{}
	flags := flag.NewFlagSet(name, flag.ContinueOnError)
	flags.IntVar(&m.rounds, "rounds", rounds, "rounds, in each of which every side is measured once")
	seconds := flags.Float64("seconds", 0.5, "length of each measured span; four times that where processes contend")
	m.out.flags(flags)
	for _, add := range more {
		add(flags)
	}
	if err := parse(flags, args); err != nil {
		return nil, err
	}
	if m.rounds < 1 || *seconds < 0.01 || *seconds > 60 {
		return nil, usageError{fmt.Errorf("%d rounds of %gs: at least one, of 0.01 to 60 s", m.rounds, *seconds)}
	}
	m.span = span(*seconds)
	var err error
	if m.redis, err = startRedis(ctx); err != nil {
		return nil, err
	}
	machine, err := machine(ctx, m.redis)
	if err != nil {
		m.redis.end()
		return nil, err
	}
	m.result = &table{
		Title: name, When: time.Now().UTC().Truncate(time.Second), Rounds: m.rounds, Seconds: *seconds, Machine: machine,
		Columns: []string{"what", "side", "value", "unit", "to", "ratio", "middle half"},
		Notes:   []string{"ratio: the side's value to that of the side named under to, in the same round."},
	}
	return m, nil
}

// locksCommand compares locks: a pair of acquiring and releasing without rivals, and processes that
// contend.
func locksCommand(ctx context.Context, args []string, _ io.Reader, stdout io.Writer) error {
	m, err := beginMatch(ctx, "locks", args, 7)
	if err != nil {
		return err
	}
	defer m.redis.end()
	for _, part := range []func(context.Context) error{m.pairs, m.contests} {
		if err := part(ctx); err != nil {
			return err
		}
	}
	return m.out.write(stdout, m.result)
}

// turns measures each way once in each round; another one begins each time.
func (m *lockMatch) turns(ctx context.Context, ways []string,
	measure func(ctx context.Context, way string) ([]float64, error)) (map[string][][]float64, error) {
	values := map[string][][]float64{}
	for round := range m.rounds {
		for i := range ways {
			way := ways[(i+round)%len(ways)]
			got, err := m.inTime(ctx, way, measure)
			for again := 0; again < 2 && errors.As(err, new(*lateError)); again++ {
				m.result.Notes = append(m.result.Notes, fmt.Sprintf("%s: measured again: %v.", way, err))
				got, err = m.inTime(ctx, way, measure)
			}
			if err != nil {
				return nil, fmt.Errorf("%s: %w", way, err)
			}
			values[way] = append(values[way], got)
		}
	}
	return values, nil
}

// inTime measures a way once. One that takes much longer than its span is given up: a peer may wait
// for a message that never comes.
func (m *lockMatch) inTime(ctx context.Context, way string,
	measure func(ctx context.Context, way string) ([]float64, error)) ([]float64, error) {
	limit := 30*time.Second + 8*m.span
	late := &lateError{limit}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, late)
	defer cancel()
	got, err := measure(ctx, way)
	if err != nil && ctx.Err() != nil {
		return nil, errors.Join(context.Cause(ctx), err)
	}
	return got, err
}

// lateError says that a measurement did not end within its limit. A peer that waits for a message
// that was lost is measured again, and the table says so.
type lateError struct{ limit time.Duration }

func (e *lateError) Error() string { return fmt.Sprintf("it has not ended after %v", e.limit) }

// rows adds a row for each way with one of its values, beside that of another way.
func (m *lockMatch) rows(what, unit string, ways []string, values map[string][][]float64, at int, to string) {
	for _, way := range ways {
		var own, ratios []float64
		for round := range values[way] {
			own = append(own, values[way][round][at])
			if to != "" && values[to][round][at] != 0 {
				ratios = append(ratios, values[way][round][at]/values[to][round][at])
			}
		}
		m.result.keep(what, way, unit, own)
		if to == "" {
			m.result.add(what, way, median(own), unit, "", "", "")
			continue
		}
		m.result.add(what, way, median(own), unit, to, median(ratios), spread(ratios))
	}
}

// pairs measures acquiring and releasing where no other client wants the lock. Each client is there
// for its own span alone: others that are open and idle disturb it.
func (m *lockMatch) pairs(ctx context.Context) error {
	ways := []string{bareTrips, coatcheck, redislockWay, rueidislockIt}
	for _, callers := range []int{1, inFlight} {
		values, err := m.turns(ctx, ways, func(ctx context.Context, way string) ([]float64, error) {
			client, err := openLocks(ctx, way, m.redis.addr)
			if err != nil {
				return nil, err
			}
			// connections are made, scripts are known
			_, warming := pairsOf(ctx, client, callers, m.span/4)
			pairs, err := pairsOf(ctx, client, callers, m.span)
			return []float64{float64(m.span.Microseconds()) * float64(callers) / pairs, pairs / m.span.Seconds()},
				errors.Join(warming, err, client.close())
		})
		if err != nil {
			return err
		}
		if callers == 1 {
			m.rows("acquire and release, one caller", "µs", ways, values, 0, bareTrips)
		} else {
			m.rows(fmt.Sprintf("acquire and release, %d callers on as many locks", callers), "pairs/s", ways, values, 1, redislockWay)
		}
	}
	return nil
}

// pairsOf counts the pairs of some callers within a span, each on a lock of its own.
func pairsOf(ctx context.Context, client lockClient, callers int, span time.Duration) (float64, error) {
	counts, errs := make([]int, callers), make([]error, callers)
	var all sync.WaitGroup
	start := time.Now()
	for i := range callers {
		all.Go(func() {
			name := fmt.Sprintf("own-%d-%d", start.UnixNano(), i) // a new one
			for time.Since(start) < span && errs[i] == nil {
				errs[i] = pairOnce(ctx, client, name)
				counts[i]++
			}
		})
	}
	all.Wait()
	took, sum := time.Since(start), 0
	for _, count := range counts {
		sum += count
	}
	return float64(sum) * span.Seconds() / took.Seconds(), errors.Join(errs...)
}

func pairOnce(ctx context.Context, client lockClient, name string) error {
	unlock, err := client.lock(ctx, name)
	if err != nil {
		return err
	}
	return unlock(ctx)
}
