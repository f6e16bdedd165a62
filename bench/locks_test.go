package main

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestLocksComparesEveryWay(t *testing.T) {
	result := command(t, "locks", "-rounds", "1", "-seconds", "0.2")
	seen := map[string][]string{}
	for _, row := range result.Rows {
		what, way := cell(row[0]), cell(row[1])
		value, _ := row[2].(float64)
		// A client that takes again what it has just given back may change no owner within the
		// measured time, and serve only some clients.
		if value <= 0 && !strings.Contains(what, "owner changes") && !strings.Contains(what, "least to most") {
			t.Errorf("%s, %s: got %v, want more than 0", what, way, row[2])
		}
		seen[way] = append(seen[way], what)
	}
	for way := range lockWays {
		if len(seen[way]) == 0 {
			t.Errorf("%s was not measured", way)
		}
	}
}

// A way that never comes to an end is told by its name, and the comparison ends.
func TestAWayThatHangsIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &lockMatch{result: &table{}, rounds: 2, span: time.Second}
		_, err := m.turns(t.Context(), []string{"quick", "hanging"}, func(ctx context.Context, way string) ([]float64, error) {
			if way == "hanging" {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return []float64{1}, nil
		})
		if err == nil || !strings.Contains(err.Error(), "hanging: it has not ended after 38s") {
			t.Errorf("got %v, want the error that names the way and its limit", err)
		}
		if len(m.result.Notes) != 2 {
			t.Errorf("notes: got %q, want one for each of 2 measurements that were repeated", m.result.Notes)
		}
	})
}

// Owner changes, fairness and the waits of those who never had it are counted as the README says.
func TestContestsAreJudged(t *testing.T) {
	const ms = 1_000_000
	turns := func(at ...int64) (list []turn) {
		for _, moment := range at {
			list = append(list, turn{At: moment * ms, Wait: 2 * ms})
		}
		return list
	}
	got, err := judge([]tally{
		{Begin: 0, End: 1000 * ms, Turns: turns(1, 20, 21, 500)},
		{Begin: 10 * ms, End: 1010 * ms, Turns: turns(30, 1005), Left: 900 * ms},
	})
	if want := []float64{2 / 0.99, 4 / 0.99, 900, 1.0 / 3}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%v %v, want %v", got, err, want)
	}
	if _, err := judge([]tally{{Begin: 0, End: 5}, {Begin: 6, End: 9}}); err == nil {
		t.Error("two that were never there at the same time")
	}
}

func TestLocksRefusesWhatCanNotBeMeant(t *testing.T) {
	for _, args := range [][]string{{"locks", "-rounds", "0"}, {"locks", "-seconds", "0"}, {"locks", "more"}, {"contend", "-way", "none"}} {
		var stdout, stderr bytes.Buffer
		if code := run(t.Context(), args, nil, &stdout, &stderr); code != usage || stderr.Len() == 0 {
			t.Errorf("%q: exit code %d, %q", args, code, &stderr)
		}
	}
}

// A process that fails says nothing of its turns: else it would count as one that was never served.
func TestAProcessThatFailsTellsNoTurns(t *testing.T) {
	redis, err := startRedis(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer redis.end()
	lockWays["failing"] = func(context.Context, string) (lockClient, error) {
		take := func(_ context.Context, name string) (unlock, error) {
			if strings.HasPrefix(name, "x-warm-") {
				return func(context.Context) error { return nil }, nil
			}
			return nil, errors.New("broken")
		}
		return lockClient{take, func() error { return nil }}, nil
	}
	defer delete(lockWays, "failing")
	var stdout, stderr bytes.Buffer
	code := run(t.Context(), []string{"contend", "-way", "failing", "-redis", redis.addr, "-name", "x"}, strings.NewReader(""), &stdout, &stderr)
	if code == 0 || stdout.String() != "ready\n" || !strings.Contains(stderr.String(), "broken") {
		t.Errorf("code %d, output %q, error %q; want a failure, and no turns after it", code, &stdout, &stderr)
	}
}
