package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// inFlight is how many requests are under way where several are.
const inFlight = 64

// plan is what a comparison is asked for.
type plan struct {
	rounds  int
	seconds float64
	list    string // of numbers of connections
	conns   []int
	out     output
}

func (p *plan) flags(flags *flag.FlagSet, conns string) {
	flags.IntVar(&p.rounds, "rounds", 9, "rounds, in each of which every side is measured once for each number of connections")
	flags.Float64Var(&p.seconds, "seconds", 1.5, "length of each measured span")
	flags.StringVar(&p.list, "conns", conns, "numbers of client connections")
	p.out.flags(flags)
}

// parse reads the flags and what they mean.
func (p *plan) parse(flags *flag.FlagSet, args []string) (err error) {
	if err := parse(flags, args); err != nil {
		return err
	}
	if p.rounds < 1 || p.seconds < 0.01 || p.seconds > 600 {
		return usageError{fmt.Errorf("%d rounds of %gs: at least one, of 0.01 to 600 s", p.rounds, p.seconds)}
	}
	p.conns, err = numbers(p.list)
	return err
}

func (p *plan) span() time.Duration { return time.Duration(p.seconds * float64(time.Second)) }

// numbers reads a list such as 1,64,256.
func numbers(list string) ([]int, error) {
	var found []int
	for text := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > 10_000 {
			return nil, usageError{fmt.Errorf("%q: numbers of 1 to 10000 with commas between them", list)}
		}
		found = append(found, n)
	}
	return found, nil
}

// guardCommand compares the ways to guard a handler. Each is a server process of its own; they take
// turns under the same load.
func guardCommand(ctx context.Context, args []string, _ io.Reader, stdout io.Writer) (err error) {
	flags := flag.NewFlagSet("guard", flag.ContinueOnError)
	var plan plan
	plan.flags(flags, "1,64,256")
	if err := plan.parse(flags, args); err != nil {
		return err
	}
	c, err := newContest(ctx, unguarded, guardSides(), plan.span())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.end()) }()
	if err := c.play(ctx, plan.rounds, plan.conns); err != nil {
		return err
	}
	result, err := c.table(ctx, "guard", plan)
	if err != nil {
		return err
	}
	return plan.out.write(stdout, result)
}

// guardSides lists what the guard command compares.
func guardSides() []side {
	var sides []side
	for _, shape := range shapes {
		args := []string{"serve", "-shape", shape.name}
		tokens := shape.name == byToken
		sides = append(sides, side{name: shape.name, args: args, plain: shape.name == unguarded || shape.name == twoPings,
			replay: shape.name == onePing, tokens: tokens})
		if shape.name == coatcheck || tokens || shape.name == rueidisAuto {
			sides = append(sides, side{name: shape.name + " replay", args: args, replay: true, tokens: tokens})
		}
	}
	return sides
}
