package idempotency

import (
	"fmt"
	"regexp"
	"strconv"
	"testing"
	"time"
)

// BenchmarkDoubts is what a scrape of the operations in doubt costs a Redis that has a million
// operations under way: the time that its scripts take there, and how many first requests claim
// their keys in as long.
func BenchmarkDoubts(b *testing.B) {
	redis, now := startBusyRedis(b), time.Now()
	lapsed, open := now.Add(-2*time.Hour).UnixMilli(), now.Add(24*time.Hour).UnixMilli()
	redis.fill(1_000, StateClaimed, "a", lapsed)
	redis.fill(99_000, StateClaimed, "b", open)
	redis.fill(900_000, StateClaimed, "c", open)
	for _, of := range []struct {
		inDoubt int
		more    int // that are in doubt besides
		name    string
	}{{1_000, 0, ""}, {100_000, 99_000, "b"}, {1_000_000, 900_000, "c"}} {
		redis.fill(of.more, StateClaimed, of.name, lapsed)
		b.Run(fmt.Sprintf("%d in doubt of 1000000", of.inDoubt), func(b *testing.B) {
			const claims = 1000
			claim := redis.time(func() {
				for i := range claims {
					key := Key{Scope: "benchmark", ID: fmt.Sprint(of.inDoubt, "-", i)}
					if _, err := redis.tokens.Claim(b.Context(), key, ClaimOptions{Fingerprint: "f"}); err != nil {
						b.Fatalf("Claim: %v", err)
					}
				}
			}) / claims
			scrapes := 0
			took := redis.time(func() {
				for b.Loop() {
					scrapes++
					if found, err := redis.tokens.Doubts(b.Context()); err != nil || found.Operations != of.inDoubt {
						b.Fatalf("Doubts: got %d and error %v, want %d", found.Operations, err, of.inDoubt)
					}
				}
			}) / float64(scrapes)
			b.ReportMetric(took, "redis-µs/op")
			b.ReportMetric(took/claim, "claims/op")
		})
	}
}

var spent = regexp.MustCompile(`cmdstat_evalsha:calls=\d+,usec=(\d+)`)

// time is how long Redis worked while something was done, in microseconds: in scripts.
func (b *busyRedis) time(do func()) (microseconds float64) {
	b.t.Helper()
	sum := func() (all float64) {
		text, err := b.server.Client().Info(b.t.Context(), "commandstats").Result()
		if err != nil {
			b.t.Fatalf("INFO commandstats: %v", err)
		}
		for _, found := range spent.FindAllStringSubmatch(text, -1) {
			n, _ := strconv.ParseFloat(found[1], 64) // digits
			all += n
		}
		return all
	}
	before := sum()
	do()
	return sum() - before
}
