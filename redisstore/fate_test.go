package redisstore_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/coatcheck/coatcheck/internal/onstore"
	"github.com/coatcheck/coatcheck/internal/pipeline"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/redisstore"
)

// A script that breaks its contract, or a caller that does, fails alone, whatever shares its round
// trip.
func TestFaultOfOneCallIsItsOwn(t *testing.T) {
	store := open(t, redistest.Start(t).URL(), nil)
	warm(t, store, 4)
	for name, fault := range map[string]struct {
		source string
		args   []any
		class  error
	}{
		"an integer":                       {"return 7", nil, redisstore.ErrUnknownOutcome},
		"a status":                         {"return redis.status_reply('OK')", nil, redisstore.ErrUnknownOutcome},
		"nothing":                          {"return nil", nil, redisstore.ErrUnknownOutcome},
		"a list in a list":                 {"return {'ok', {'x'}}", nil, redisstore.ErrUnknownOutcome},
		"an error in a list":               {"return {'ok', redis.error_reply('NO')}", nil, redisstore.ErrUnknownOutcome},
		"an argument of another type":      {"return {'ok'}", []any{map[string]int{}}, redisstore.ErrUnavailable},
		"an argument that cannot be given": {"return {'ok'}", []any{refuses{}}, redisstore.ErrUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			strange := script("strange", fault.source, false)
			gathered(t, store, 200, func(i int) {
				if i%10 == 0 {
					_, err := onstore.Run(t.Context(), store, strange, []string{onstore.Key(store, "test", "x")}, fault.args...)
					if !errors.Is(err, fault.class) {
						t.Errorf("the call at fault: got error %v, want %v", err, fault.class)
					}
					return
				}
				if n, err := number(t.Context(), store, peek, fmt.Sprint("y", i)); err != nil || n != 0 {
					t.Errorf("another call: got %d and error %v, want 0 and none", n, err)
				}
			})
		})
	}
}

type refuses struct{}

func (refuses) MarshalBinary() ([]byte, error) { return nil, errors.New("it cannot be given") }

// What is large shares no round trip: others do not wait for it, and have no part in its end.
func TestLargeCallHoldsUpNoOther(t *testing.T) {
	end := make(chan struct{})
	server := startFake(t, func(_ *fake, words []string) string {
		if len(words[len(words)-1]) > 100_000 || words[len(words)-1] == "answer me at length" {
			<-end
		}
		return "*2\r\n$2\r\nok\r\n$1\r\n0\r\n"
	})
	store := open(t, "redis://"+server.addr, nil)
	var large, small sync.WaitGroup
	key := []string{onstore.Key(store, "test", "x")}
	for i := range 60 {
		if i%20 == 5 {
			large.Go(func() {
				_, err := onstore.Run(t.Context(), store, bump, key, strings.Repeat("x", 200_000))
				expect.Error(t, "the call with a large argument", err, nil)
			})
			large.Go(func() {
				_, err := pipeline.Of(store).RunLarge(t.Context(), 1<<20, peek, key, "answer me at length")
				expect.Error(t, "the call with a large reply", err, nil)
			})
		}
		small.Go(func() {
			_, err := onstore.Run(t.Context(), store, peek, key, "x")
			expect.Error(t, "a small call", err, nil)
		})
	}
	small.Wait() // while the large ones hang
	close(end)
	large.Wait()
}
