package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// A way that loses a call or counts one twice ends the measurement.
func TestCountersComparesEveryWay(t *testing.T) {
	result := command(t, "counters", "-rounds", "1", "-seconds", "0.1", "-callers", "1,5", "-keys", "1,70")
	rates := result.cells(t, "calls/s", 0, 1, 2, 3)
	for where, ways := range map[string][]string{
		"loopback": {goRedisIncr, goRedisAutoIncr, coatcheck},
		"ack=1":    {goRedisIncr, coatcheck},
	} {
		for _, way := range ways {
			for _, load := range []string{" 1.00 1.00 ", " 1.00 5.00 ", " 70.0 1.00 ", " 70.0 5.00 "} {
				if rate, _ := rates[where+load+way].(float64); rate <= 0 {
					t.Errorf("%s%s%s: %v calls/s", where, load, way, rates[where+load+way])
				}
			}
		}
	}
}

func TestCountersComparesTheLeast(t *testing.T) {
	result := command(t, "counters", "-rounds", "1", "-seconds", "0.1", "-callers", "64", "-keys", "1,70")
	rates := result.cells(t, "calls/s", 0, 1, 3)
	for _, way := range leastIncrs {
		for _, keys := range []string{"loopback 1.00 ", "loopback 70.0 "} {
			if rate, _ := rates[keys+way].(float64); rate <= 0 {
				t.Errorf("%s%s: %v calls/s", keys, way, rates[keys+way])
			}
		}
	}
}

// A caller that hands a request over gets a number that no other gets, and an error once the way is
// broken.
func TestHandedOverNumbersAreEachOnesOwn(t *testing.T) {
	redis, err := startRedis(t.Context())
	expect.Error(t, "starting Redis", err, nil)
	defer redis.end()
	for _, way := range leastIncrs {
		for _, keys := range []int{1, 3} {
			load := countLoad{callers: 8, names: counterNames(keys)}
			client, err := openCounting(t.Context(), way, counterPlace{addr: redis.addr}, load)
			expect.Error(t, way, err, nil)
			const calls = 200
			var seen sync.Map
			var all sync.WaitGroup
			for caller := range load.callers {
				all.Go(func() {
					for range calls {
						name := load.names[caller%keys]
						got, err := client.incr(t.Context(), name)
						if _, twice := seen.LoadOrStore(fmt.Sprint(name, " ", got), true); err != nil || twice || got < 1 || got > int64(load.callers*calls) {
							t.Errorf("%s, %s: got %d and error %v, another had it: %v", way, name, got, err, twice)
						}
					}
				})
			}
			all.Wait()
			expect.Error(t, "closing "+way, client.close(), nil)
		}
	}
	broken := newHandOver(func([]*handing) error { return io.ErrUnexpectedEOF })
	_, err = broken.incr(t.Context(), "x")
	expect.Error(t, "a call of a broken way", err, errNotCounted)
	expect.Error(t, "closing it", broken.close(), io.ErrUnexpectedEOF)
}

func TestCountersFindsAWayThatMiscounts(t *testing.T) {
	redis, err := startRedis(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer redis.end()
	client := counting{
		incr: func(ctx context.Context, name string) (int64, error) { return redis.IncrBy(ctx, name, 2).Result() },
		key:  func(name string) string { return name },
	}
	load := countLoad{client: client, callers: 3, names: counterNames(2)}
	sample, err := load.run(t.Context(), 200*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	sum, err := redis.sum(t.Context(), client, load.names)
	if err != nil || sum != 2*sample.calls || sample.calls == 0 {
		t.Errorf("%d calls have added %d, %v", sample.calls, sum, err)
	}
	load.client.incr = func(context.Context, string) (int64, error) { return 0, io.ErrUnexpectedEOF }
	if _, err := load.run(t.Context(), time.Millisecond); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("got %v", err)
	}
}

func TestCountersRefusesWhatCanNotBeMeant(t *testing.T) {
	for _, args := range [][]string{
		{"counters", "-rounds", "0"}, {"counters", "-seconds", "0"}, {"counters", "-callers", "0"}, {"counters", "-keys", "0"}, {"counters", "more"},
		{"incr", "-rounds", "0"}, {"incr", "-conns", ""}, {"serve-incr", "-side", "none"}, {"get", "more"},
	} {
		var stdout, stderr bytes.Buffer
		if code := run(t.Context(), args, strings.NewReader(""), &stdout, &stderr); code != usage || stderr.Len() == 0 {
			t.Errorf("%q: exit code %d, %q", args, code, &stderr)
		}
	}
}
