package main

import (
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/counter"
	"github.com/coatcheck/coatcheck/internal/redistest"
	"github.com/coatcheck/coatcheck/internal/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/server"
)

// With --segment-create=false a tag that is not there is no tag, at a service and straight on Redis, and asking for it makes none.
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
			tags := counter.New(storetest.Open(t, redisstore.Config{URL: redis.URL()}), server.SegmentCounters(counter.Config{}))
			defer tags.Close()
			at, env := open(redis.URL())
			ask := func() (int, string, string) {
				return coatcheck(t, env, append([]string{"id", "segment", "orders"}, at...)...)
			}
			for range 2 {
				if code, stdout, stderr := ask(); code != failed || stdout != "" || !strings.Contains(stderr, "no such") && !strings.Contains(stderr, "not-found") {
					t.Errorf("%d %s %s", code, stdout, stderr)
				}
			}
			if err := tags.Set(t.Context(), "orders", 41, 0); err != nil {
				t.Fatal(err)
			}
			if code, stdout, stderr := ask(); code != done || stdout != "42\n" {
				t.Errorf("%d %s %s", code, stdout, stderr)
			}
		})
	}
}
