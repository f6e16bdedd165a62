package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"time"
)

// bareCommands is the side of the scripts that only run the commands.
const bareCommands = "the bare commands"

// sums are the rows that add acts of one request.
var sums = []struct {
	what string
	acts []string
}{
	{claimAndComplete, []string{claimAct, completeAct}},
	{lockAndRelease, []string{enterAct, leaveAct}},
}

const (
	claimAndComplete = "claim and complete"
	lockAndRelease   = "lock and release"
)

// redisCommand measures what each script that a user's request runs takes in Redis, beside the bare
// commands of the same work.
func redisCommand(ctx context.Context, args []string, _ io.Reader, stdout io.Writer) error {
	flags := flag.NewFlagSet("redis", flag.ContinueOnError)
	rounds := flags.Int("rounds", 5, "rounds, in each of which every script is measured once")
	n := flags.Int("calls", 10_000, fmt.Sprintf("calls of each script in a round, to 10,000; of those of worker ids %d at most", turnsOfSlots))
	var out output
	out.flags(flags)
	if err := parse(flags, args); err != nil {
		return err
	}
	if *rounds < 1 || *n < pipelined || *n > 10_000 {
		return usageError{fmt.Errorf("%d rounds, %d calls: at least one, and %d to 10,000", *rounds, *n, pipelined)}
	}
	told, end, err := tellStories(ctx, *n)
	defer end()
	if err != nil {
		return err
	}
	about, err := machine(ctx, told[0].redis)
	if err != nil {
		return err
	}
	costs := scriptCosts{}
	for round := range *rounds + 1 { // the first one warms up
		for i := range told {
			story := told[(i+round)%len(told)]
			if err := story.measure(ctx, costs, round); err != nil {
				return err
			}
		}
		if round == 0 {
			clear(costs)
		}
		fmt.Fprintf(os.Stderr, "redis: round %d of %d\n", round, *rounds)
	}
	t := &table{Title: "redis", When: time.Now().UTC(), Machine: about, Rounds: *rounds, Columns: []string{
		"script", aSecond, "µs", "middle half", "bare commands, µs", "to the bare commands", "middle half", "commands", "bare",
		"bytes afterwards", "bare",
	}}
	costs.report(t, told)
	t.Notes = append(t.Notes, fmt.Sprintf("µs: usec_per_call of EVALSHA, %d calls in a round, of those for worker ids %d, in pipelines "+
		"of %d; a second: how many of it Redis can run if it does nothing else. Commands: those that a script runs. Bytes afterwards: how much "+
		"used_memory has grown since the first act on the key, for each call.", *n, min(*n, turnsOfSlots), pipelined))
	return out.write(stdout, t)
}

// tellStories records all stories. The caller calls end, also after an error.
func tellStories(ctx context.Context, n int) (told []*story, end func(), err error) {
	var ends []func()
	end = func() {
		for _, end := range slices.Backward(ends) {
			end()
		}
	}
	server, err := startRedis(ctx)
	if err != nil {
		return nil, end, err
	}
	ends = append(ends, server.end)
	recorder := newRecorder()
	for _, open := range stories {
		if err := server.FlushAll(ctx).Err(); err != nil {
			return nil, end, err
		}
		story, err := tell(ctx, &stage{redis: server, recorder: recorder, n: n}, open)
		if err != nil {
			return nil, end, err
		}
		ends = append(ends, server.listen(ctx, append(story.channels, bareChannel)))
		told = append(told, story)
	}
	large, err := startRedis(ctx)
	if err != nil {
		return nil, end, err
	}
	ends = append(ends, large.end)
	for _, ring := range []struct {
		what  string
		width int
	}{{renewFewAct, 10}, {renewMostAct, 20}} {
		story, err := tell(ctx, &stage{redis: large, recorder: newRecorder(), n: n}, func(ctx context.Context, s *stage) (*story, error) {
			return renewals(ctx, s, ring.what, ring.width)
		})
		if err != nil {
			return nil, end, err
		}
		told = append(told, story)
	}
	return told, end, nil
}

// tell has the library tell a story, and records the calls of its scripts.
func tell(ctx context.Context, s *stage, open func(context.Context, *stage) (*story, error)) (_ *story, err error) {
	if s.store, err = s.recorder.open(s.redis); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.store.Close()) }()
	told, err := open(ctx, s)
	if told != nil && told.close != nil {
		defer func() { err = errors.Join(err, told.close()) }()
	}
	if err != nil {
		return nil, err
	}
	told.redis = s.redis
	if !told.stays {
		if told.start, err = s.redis.dump(ctx); err != nil {
			return nil, err
		}
	}
	s.recorder.forget()
	for i := range told.acts {
		if err := told.acts[i].record(ctx, s); err != nil {
			return nil, fmt.Errorf("%s: %w", told.acts[i].script.Name, err)
		}
	}
	told.channels, err = s.redis.PubSubChannels(ctx, "*").Result()
	return told, err
}

// record makes the calls of an act.
func (a *act) record(ctx context.Context, s *stage) (err error) {
	if a.given {
		if a.start, err = s.redis.dump(ctx); err != nil {
			return err
		}
	}
	if a.call != nil {
		if err := forEach(ctx, func(i int) error { return a.call(ctx, i) }, s.n); err != nil {
			return err
		}
	}
	a.recorded = s.recorder.take(a.script)
	if a.word != "" && len(a.recorded) != s.n {
		return fmt.Errorf("%d calls of a user ran the script %d times", s.n, len(a.recorded))
	}
	if a.bare.text != "" {
		a.bareCalls, err = a.bare.calls(ctx, s.redis, s.n)
	}
	return err
}

// scriptCosts are the costs of the sides of an act, in each round.
type scriptCosts map[string]map[string][]cost

func (c scriptCosts) add(what, side string, of cost) {
	if c[what] == nil {
		c[what] = map[string][]cost{}
	}
	c[what][side] = append(c[what][side], of)
}

// measure plays a story, and the bare one.
func (s *story) measure(ctx context.Context, costs scriptCosts, round int) error {
	sides := []string{coatcheck, bareCommands}
	for i := range sides {
		side := sides[(i+round)%2]
		if err := s.play(ctx, costs, side); err != nil {
			return fmt.Errorf("%s: %w", side, err)
		}
	}
	return nil
}

// play plays the acts of one side, from the beginning.
func (s *story) play(ctx context.Context, costs scriptCosts, side string) error {
	if err := s.begin(ctx, side); err != nil {
		return err
	}
	before, err := s.redis.number(ctx, "memory", "used_memory")
	if err != nil {
		return err
	}
	for _, act := range s.acts {
		calls, check := act.recorded, act.after
		if side == bareCommands {
			calls, check = act.bareCalls, nil
		}
		if len(calls) == 0 {
			continue
		}
		if act.given && side == coatcheck {
			if err := s.redis.restore(ctx, act.start); err != nil {
				return err
			}
		}
		found, err := s.redis.play(ctx, calls, act.word)
		if err == nil && check != nil {
			err = check(ctx)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", act.script.Name, err)
		}
		after, err := s.redis.number(ctx, "memory", "used_memory")
		if err != nil {
			return err
		}
		found.bytes = (after - before) / float64(len(calls))
		costs.add(act.what, side, found)
	}
	return nil
}

func (s *story) begin(ctx context.Context, side string) error {
	if s.stays {
		return nil
	}
	if side == coatcheck {
		return s.redis.restore(ctx, s.start)
	}
	if err := s.redis.restore(ctx, nil); err != nil || s.bareFilled == nil {
		return err
	}
	return s.bareFilled(ctx)
}

// report puts all costs into a table.
func (c scriptCosts) report(t *table, told []*story) {
	for _, story := range told {
		for _, act := range story.acts {
			if act.what != "" {
				c.row(t, act.what, story.steady)
			}
		}
	}
	for _, sum := range sums {
		for _, side := range []string{coatcheck, bareCommands} {
			for round := range c[sum.acts[0]][side] {
				var all cost
				for _, what := range sum.acts {
					one := c[what][side][round]
					// the last act's bytes are those of all
					all = cost{all.usec + one.usec, all.calls + one.calls, one.bytes}
				}
				c.add(sum.what, side, all)
			}
		}
		c.row(t, sum.what, false)
	}
	for act, side := range map[string]string{renewFewAct: fewSlots, renewMostAct: mostSlots} {
		t.keep(renewRing, side, "µs", t.rounds(act, coatcheck, "µs"))
	}
}

// aSecond is the unit of what Redis can do if it does nothing else.
const aSecond = "a second"

// renewRing are the samples of renewals by the size of the ring.
const renewRing = "renew a worker id"

// row adds an act.
func (c scriptCosts) row(t *table, what string, steady bool) {
	for _, side := range []string{coatcheck, bareCommands} {
		var usec, rates, calls, bytes []float64
		for _, round := range c[what][side] {
			usec, rates = append(usec, round.usec), append(rates, 1e6/round.usec)
			calls, bytes = append(calls, round.calls), append(bytes, round.bytes)
		}
		t.keep(what, side, "µs", usec)
		t.keep(what, side, aSecond, rates)
		t.keep(what, side, "commands", calls)
		if !steady {
			t.keep(what, side, "bytes", bytes)
		}
	}
	of := func(side, unit string) any {
		if rounds := t.rounds(what, side, unit); len(rounds) > 0 {
			return median(rounds)
		}
		return "–"
	}
	own := t.rounds(what, coatcheck, "µs")
	to := ratios(own, t.rounds(what, bareCommands, "µs"))
	t.add(what, of(coatcheck, aSecond), of(coatcheck, "µs"), spread(own), of(bareCommands, "µs"), median(to), spread(to),
		of(coatcheck, "commands"), of(bareCommands, "commands"), of(coatcheck, "bytes"), of(bareCommands, "bytes"))
}
