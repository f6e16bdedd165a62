package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// The ways to run a command that does nothing, which the once command compares.
const (
	bareCommand = "the command alone"
	itsVersion  = "coatcheck version" // the least that starting the program costs
	byFlock     = "flock"             // one at a time, on one machine; it remembers nothing
	lockRun     = "coatcheck lock run"
	once        = "coatcheck once"
	onceAgain   = "coatcheck once, repeat"

	byOld = ", old" // ends the name of a way that the program of -old runs
)

// runNothing is what the once command measures.
const runNothing = "a command that does nothing"

// onceCommand measures what a command costs that does nothing, within what has it run once.
func onceCommand(ctx context.Context, args []string, _ io.Reader, stdout io.Writer) error {
	if err := build(ctx); err != nil {
		return err
	}
	old := ""
	m, err := beginMatch(ctx, "once", args, 7, func(flags *flag.FlagSet) {
		flags.StringVar(&old, "old", "", "another build of coatcheck, to measure beside this one")
	})
	if err != nil {
		return err
	}
	defer m.redis.end()
	ways := []string{bareCommand, itsVersion, once, onceAgain, lockRun}
	if _, err := exec.LookPath(byFlock); err == nil {
		ways = append(ways, byFlock)
	} else {
		m.result.Notes = append(m.result.Notes, "flock is not installed.")
	}
	var both [][]string // each way by the old program and by this one
	if old != "" {
		for _, way := range []string{itsVersion, once, onceAgain, lockRun} {
			ways, both = append(ways, way+byOld), append(both, []string{way + byOld, way})
		}
	}
	values, err := m.turns(ctx, ways, func(ctx context.Context, way string) ([]float64, error) {
		begun, n := time.Now(), 0
		for ; time.Since(begun) < m.span; n++ {
			if err := m.runOnce(ctx, way, old); err != nil {
				return nil, err
			}
		}
		return []float64{float64(time.Since(begun).Microseconds()) / 1000 / float64(n)}, nil
	})
	if err != nil {
		return err
	}
	m.rows(runNothing, "ms", ways, values, 0, bareCommand)
	for _, pair := range both {
		m.rows(runNothing+", by both programs", "ms", pair, values, 0, pair[0])
	}
	return m.out.write(stdout, m.result)
}

// runOnce runs the command by a way, and waits for its end.
func (m *lockMatch) runOnce(ctx context.Context, way, old string) error {
	key, program := "nightly", built
	if name, is := strings.CutSuffix(way, byOld); is {
		way, program = name, old
	}
	if way == once {
		key += strconv.FormatInt(time.Now().UnixNano(), 36) // a new one
	}
	redis := " --redis " + m.redis.url()
	line := map[string]string{
		bareCommand: "true",
		itsVersion:  program + " version",
		byFlock:     "flock " + m.redis.dir + " true",
		lockRun:     program + " lock run " + key + redis + " -- true",
		once:        program + " once " + key + redis + " -- true",
		onceAgain:   program + " once " + key + redis + " -- true",
	}[way]
	words := strings.Fields(line)
	command := exec.CommandContext(ctx, words[0], words[1:]...) //nolint:gosec // one of those above
	told, err := command.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", line, err, told)
	}
	if ran := strings.Contains(string(told), "ran before"); ran && way == once {
		return fmt.Errorf("%s did not run: %s", key, told)
	}
	return nil
}
