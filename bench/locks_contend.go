package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"
)

// rivals is how many processes contend for one lock.
const rivals = 8

// turn is one time that a rival had the lock.
type turn struct {
	At   int64 `json:"at"`   // when it had it, in nanoseconds since 1970
	Wait int64 `json:"wait"` // in nanoseconds
}

// tally is what a rival tells.
type tally struct {
	Begin int64  `json:"begin"`
	End   int64  `json:"end"`
	Turns []turn `json:"turns"`
	Left  int64  `json:"left"` // how long it was waiting when the time was over, in nanoseconds
}

// contendCommand is a rival: it takes a lock, has it for the length of a
// section and gives it back, again and again. It says when it is ready, and begins when its
// standard input ends, so that all of them begin together.
func contendCommand(ctx context.Context, args []string, stdin io.Reader, stdout io.Writer) error {
	flags := flag.NewFlagSet("contend", flag.ContinueOnError)
	way := flags.String("way", "", "the way to lock")
	addr := flags.String("redis", "", "address of the Redis")
	name := flags.String("name", "", "name of the lock")
	section := flags.Duration("section", 0, "how long each has the lock")
	span := flags.Duration("span", time.Second, "how long to go on")
	if err := parse(flags, args); err != nil {
		return err
	}
	client, err := openLocks(ctx, *way, *addr)
	if err != nil {
		return err
	}
	if err := pairOnce(ctx, client, *name+"-warm-"+strconv.FormatInt(time.Now().UnixNano(), 36)); err != nil {
		return err
	}
	fmt.Fprintln(stdout, "ready")
	if _, err := io.Copy(io.Discard, stdin); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, *span)
	defer cancel()
	result := tally{Begin: time.Now().UnixNano()}
	result.Turns, result.Left, err = contend(ctx, client, *name, *section)
	result.End = time.Now().UnixNano()
	if err := errors.Join(err, client.close()); err != nil {
		return err // without turns, or the contest would count it as one that was never served
	}
	return json.NewEncoder(stdout).Encode(result)
}

// contend takes turns until the context ends, and tells how long it was waiting then.
func contend(ctx context.Context, client lockClient, name string, section time.Duration) (turns []turn, left int64, err error) {
	for ctx.Err() == nil {
		asked := time.Now()
		unlock, err := client.lock(ctx, name)
		if err != nil && ctx.Err() != nil {
			return turns, time.Since(asked).Nanoseconds(), nil //nolint:nilerr // the time is over
		} else if err != nil {
			return nil, 0, err
		}
		got := time.Now()
		turns = append(turns, turn{got.UnixNano(), got.Sub(asked).Nanoseconds()})
		if section > 0 {
			time.Sleep(section)
		}
		if err := unlock(context.WithoutCancel(ctx)); err != nil {
			return nil, 0, err
		}
	}
	return turns, 0, nil
}

// contests has processes contend, with a section of a millisecond and with an empty one.
func (m *lockMatch) contests(ctx context.Context) error {
	ways := []string{bareList, coatcheck, redislockWay, rueidislockIt}
	for _, section := range []time.Duration{time.Millisecond, 0} {
		values, err := m.turns(ctx, ways, func(ctx context.Context, way string) ([]float64, error) {
			return m.contest(ctx, way, section)
		})
		if err != nil {
			return err
		}
		what := fmt.Sprintf("%d processes, %v section", rivals, section)
		if section == 0 {
			what = fmt.Sprintf("%d processes, empty section", rivals)
		}
		m.rows(what+": owner changes", "per s", ways, values, 0, bareList)
		m.rows(what+": acquisitions", "per s", ways, values, 1, bareList)
		m.rows(what+": p99 wait", "ms", ways, values, 2, bareList)
		m.rows(what+": least to most served", "", ways, values, 3, "")
	}
	return nil
}

// contest is one span of it: owner changes and acquisitions a second, the 99th percentile of the
// waits in ms, and the least served one's part of the most served one's.
func (m *lockMatch) contest(ctx context.Context, way string, section time.Duration) ([]float64, error) {
	name := "contested-" + strconv.FormatInt(time.Now().UnixNano(), 36)
	span := 4 * m.span
	var children []*child
	defer func() {
		for _, child := range children {
			child.end()
		}
	}()
	for range rivals {
		child, err := again(ctx, "contend", "-way", way, "-redis", m.redis.addr, "-name", name,
			"-section", section.String(), "-span", span.String())
		if err != nil {
			return nil, err
		}
		children = append(children, child)
	}
	for _, child := range children {
		if _, err := child.line(); err != nil {
			return nil, err
		}
	}
	for _, child := range children {
		if err := child.stdin.Close(); err != nil {
			return nil, err
		}
	}
	var tallies []tally
	for _, child := range children {
		line, err := child.line()
		if err != nil {
			return nil, err
		}
		var result tally
		if err := json.Unmarshal([]byte(line), &result); err != nil {
			return nil, err
		}
		tallies = append(tallies, result)
	}
	return judge(tallies)
}

// judge looks at the time in which all processes took part.
func judge(tallies []tally) ([]float64, error) {
	begin, end := int64(0), tallies[0].End
	for _, result := range tallies {
		begin, end = max(begin, result.Begin), min(end, result.End)
	}
	if end-begin < int64(10*time.Millisecond) {
		return nil, errors.New("the processes were not there at the same time")
	}
	type owned struct {
		turn

		owner int
	}
	var all []owned
	var waits []time.Duration
	var served []int
	for owner, result := range tallies {
		count := 0
		if result.Left > 0 { // one that never had it waits, too
			waits = append(waits, time.Duration(result.Left))
		}
		for _, turn := range result.Turns {
			if turn.At >= begin && turn.At < end {
				all = append(all, owned{turn, owner})
				waits = append(waits, time.Duration(turn.Wait))
				count++
			}
		}
		served = append(served, count)
	}
	slices.SortFunc(all, func(a, b owned) int { return int(a.At - b.At) })
	changes := 0
	for i := 1; i < len(all); i++ {
		if all[i].owner != all[i-1].owner {
			changes++
		}
	}
	slices.Sort(waits)
	seconds := time.Duration(end - begin).Seconds()
	fairness := float64(slices.Min(served)) / max(1, float64(slices.Max(served)))
	return []float64{float64(changes) / seconds, float64(len(all)) / seconds, percentile(waits, 0.99) / 1000, fairness}, nil
}
