package cli

import (
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
)

// With --segment-create=false a tag that is not there is no tag, at a service and straight on
// Redis, and asking for it makes none.
func TestSegmentOfATagThatIsNotThere(t *testing.T) {
	const onlyKnown = "--segment-create=false"
	type door func(url string) (at []string, env map[string]string)
	for name, open := range map[string]door{
		"service": func(url string) ([]string, map[string]string) {
			return []string{"--server", serve(t, "--redis", url, onlyKnown).banner.URL}, nil
		},
		"redis": func(url string) ([]string, map[string]string) { return []string{"--redis", url, onlyKnown}, nil },
		"redis, by environment": func(url string) ([]string, map[string]string) {
			return []string{"--redis", url}, map[string]string{"COATCHECK_SEGMENT_CREATE": "false"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			redis := redistest.Start(t)
			at, env := open(redis.URL())
			ask := func() result {
				return execute(t, env, append([]string{"id", "segment", "orders"}, at...)...)
			}
			for range 2 {
				refused := ask().exits(failed)
				expect.Equal(t, "stdout of "+refused.line, refused.stdout, "")
				if !strings.Contains(refused.stderr, "no such") && !strings.Contains(refused.stderr, "not-found") {
					t.Errorf("%s: got %q, want it to say that there is no such tag", refused.line, refused.stderr)
				}
			}
			execute(t, nil, "segment", "set", "orders", "42", "--redis", redis.URL()).exits(done)
			expect.Equal(t, "an id of a tag that was set to 42", ask().exits(done).stdout, "42\n")
		})
	}
}

// An operator says where a tag goes on, at a service and straight on Redis; forward only.
func TestSegmentSetSaysWhereATagGoesOn(t *testing.T) {
	doors(t, func(t *testing.T, at []string) {
		at = at[:2] // --server or --redis
		set := func(words ...string) result {
			return execute(t, nil, append(append([]string{"segment", "set"}, words...), at...)...)
		}
		expect.Equal(t, "output of the setting", set("orders", "5001").exits(done).stdout, "orders goes on at 5001.\n")
		expect.Equal(t, "JSON of the setting", set("orders", "5001", "--json").exits(done).stdout, `{"tag":"orders","next":"5001"}`+"\n")
		expect.Equal(t, "the next id", execute(t, nil, append([]string{"id", "segment", "orders"}, at...)...).exits(done).stdout, "5001\n")
		expect.Contains(t, "refusal of an id that is past", set("orders", "5001").exits(usage).stderr, "it is at ")
		for _, wrong := range [][]string{{"orders"}, {"orders", "0"}, {"orders", "1.5"}, {"or ders", "1"}, {"orders", "1", "2"}} {
			set(wrong...).exits(usage)
		}
	})
}
