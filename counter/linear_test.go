package counter_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/coatcheck/coatcheck/counter"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
)

// deed is a call of a counter: by 0 reads it.
type deed struct{ by int64 }

// counterModel is a counter without failures: each call gets the values that follow.
var counterModel = porcupine.Model{
	Init: func() any { return int64(0) },
	Step: func(state, input, output any) (bool, any) {
		next := state.(int64) + input.(deed).by
		return output.(int64) == next, next
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("by %d: %d", input.(deed).by, output) },
}

func TestModelKnowsAHistoryThatIsNotLinearizable(t *testing.T) {
	t.Parallel()
	op := func(client int, call, back, by, value int64) porcupine.Operation {
		return porcupine.Operation{ClientId: client, Call: call, Return: back, Input: deed{by}, Output: value}
	}
	for name, row := range map[string]struct {
		history []porcupine.Operation
		legal   bool
	}{
		"in turn":         {[]porcupine.Operation{op(0, 0, 1, 1, 1), op(1, 2, 3, 2, 3), op(0, 4, 5, 0, 3)}, true},
		"at once":         {[]porcupine.Operation{op(0, 0, 9, 1, 3), op(1, 1, 8, 2, 2), op(2, 2, 7, 0, 0)}, true},
		"twice":           {[]porcupine.Operation{op(0, 0, 9, 1, 1), op(1, 1, 8, 1, 1)}, false},
		"later, and less": {[]porcupine.Operation{op(0, 0, 1, 1, 2), op(1, 2, 3, 1, 1)}, false},
		"an old read":     {[]porcupine.Operation{op(0, 0, 1, 1, 1), op(1, 2, 3, 0, 0)}, false},
	} {
		expect.Equal(t, "whether the checker finds fit: "+name, porcupine.CheckOperations(counterModel, row.history), row.legal)
	}
}

func TestHistoriesAreLinearizable(t *testing.T) {
	storetest.Each(t, func(t *testing.T, store *redisstore.Store) {
		var processes []counters
		for range 2 {
			c := counters{counter.New(store, counter.Config{}), store}
			defer c.Close()
			processes = append(processes, c)
		}
		for round := range 30 {
			history := record(t, processes, fmt.Sprint("k", round))
			if result := porcupine.CheckOperationsTimeout(counterModel, history, patience); result != porcupine.Ok {
				t.Fatalf("round %d: the history is %v, want %v: %v", round, result, porcupine.Ok, history)
			}
		}
	})
}

// record has six clients call a counter at once.
func record(t *testing.T, processes []counters, key string) (history []porcupine.Operation) {
	var mu sync.Mutex
	var all sync.WaitGroup
	start := time.Now()
	for client := range 6 {
		c := processes[client%len(processes)]
		all.Go(func() {
			for i := range 8 {
				by := int64((client + i) % 4)
				call := time.Since(start).Nanoseconds()
				value, err := c.addOrGet(t, key, by)
				back := time.Since(start).Nanoseconds()
				if err != nil {
					t.Errorf("a call by %d: got error %v, want none", by, err)
					return
				}
				mu.Lock()
				history = append(history, porcupine.Operation{ClientId: client, Call: call, Return: back, Input: deed{by}, Output: value})
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return history
}

func (c counters) addOrGet(t *testing.T, key string, by int64) (int64, error) {
	if by > 0 {
		got, err := c.IncrBy(t.Context(), key, by)
		return got.Last, err
	}
	value, err := c.Get(t.Context(), key)
	if errors.Is(err, counter.ErrNotFound) {
		return 0, nil
	}
	return value, err
}
