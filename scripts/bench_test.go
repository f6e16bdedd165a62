package scripts_test

import (
	"strconv"
	"testing"

	"github.com/coatcheck/coatcheck/scripts"
)

// The benchmarks tell what one round trip to a redis-server on this machine takes, one caller at a time.

func BenchmarkTokenClaim(b *testing.B) {
	server := open(b, "redis")
	i := 0
	for b.Loop() {
		i++
		key := []string{"{t" + strconv.Itoa(i) + "}"}
		word(b, server.run(scripts.TokenClaim, key, "ann", "print", minute, "hold", hour, "", "any"), "granted", 3)
	}
}

func BenchmarkCounterIncr(b *testing.B) {
	server := open(b, "redis")
	for b.Loop() {
		word(b, server.incr(1), "ok", 1)
	}
}

// BenchmarkWorkerAcquire goes around a ring of 1024 slots, all of whose leases end at once.
func BenchmarkWorkerAcquire(b *testing.B) {
	server := open(b, "redis")
	i := 0
	for b.Loop() {
		i++
		server.lease(lease{nonce: strconv.Itoa(i), ttl: 1, bits: 10})
	}
}
