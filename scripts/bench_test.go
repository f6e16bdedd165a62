package scripts_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/scripts"
)

// The benchmarks tell what one round trip to a redis-server on this machine takes, one caller at a
// time. Those of worker ids also tell what the script costs the server, as server-us/op and
// server-median-us.

func BenchmarkTokenClaim(b *testing.B) {
	server := open(b, "redis")
	i := 0
	for b.Loop() {
		i++
		keys := []string{"{t" + strconv.Itoa(i) + "}", "under-way"}
		word(b, server.run(scripts.TokenClaim, keys, "ann", "print", minute, "hold", hour, "", "any", "", "", "", ""), "granted", 3)
	}
}

func BenchmarkCounterIncr(b *testing.B) {
	server := open(b, "redis")
	for b.Loop() {
		word(b, server.incr(1), "ok", 1)
	}
}

// widths are those of the rings that the scripts are measured on: 1,024 slots, 65,536 and
// 1,048,576.
var widths = []int{10, 16, 20}

// crowd fills a ring of that width: each slot is leased for an hour by a holder with an identity,
// which has renewed its lease some time in the last twenty minutes, but for slot 0, which is free.
func (b *box) crowd(bits int) {
	b.Helper()
	b.create(lease{bits: bits})
	const text = `local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
for id = ARGV[1], ARGV[2] - 1 do
  local till, state = string.format('%.0f', now + 3600000 - id * 7919 % 1200000), 'h'
  if id == 0 then
    till, state = string.format('%.0f', now), 'r'
  end
  local nonce, identity = string.format('nonce%017d', id), 'orders-' .. string.format('%.0f', id)
  redis.call('ZADD', KEYS[2], till, id)
  redis.call('HSET', KEYS[1], 's:' .. id, table.concat({nonce, string.format('%.0f', now), till, string.format('%.0f', now * 1000), state, identity}, ' '))
  redis.call('HSET', KEYS[3], 'n:' .. nonce, id, 'i:' .. identity, id)
end
return 1`
	const chunk = 1 << 15
	for from := 0; from < 1<<bits; from += chunk {
		b.do("EVAL", text, 3, poolKeys[0], poolKeys[1], poolKeys[2], from, min(from+chunk, 1<<bits))
	}
	b.setHead("records", 1<<bits)
	b.setHead("next", 1<<bits)
}

var (
	cost   = regexp.MustCompile(`cmdstat_evalsha:calls=(\d+),usec=(\d+)`)
	median = regexp.MustCompile(`latency_percentiles_usec_evalsha:p50=([\d.]+)`)
)

// costs reports the server's time for each call of a script since its figures were reset: the mean,
// and the median, which other processes disturb less.
func (b *box) costs(bench *testing.B) {
	b.Helper()
	figures := b.do("INFO", "commandstats").(string) + b.do("INFO", "latencystats").(string)
	all, half := cost.FindStringSubmatch(figures), median.FindStringSubmatch(figures)
	if all == nil || half == nil {
		b.Fatal("no script was run, or this is no Redis 7")
	}
	p50, err := strconv.ParseFloat(half[1], 64)
	expect.NoError(b, "ParseFloat", err)
	bench.ReportMetric(float64(number(b, all[2]))/float64(number(b, all[1])), "server-us/op")
	bench.ReportMetric(p50, "server-median-us")
}

// ways are how a server is asked: a request when the one before was answered, which finds the
// processor's caches cold, or many at once.
var ways = map[string]int{"alone": 1, "busy": 64}

// eachRing measures requests on rings of every width, asked in every way. prepare makes a ring
// ready, and returns what sends the i-th request.
func eachRing(b *testing.B, prepare func(server *box, bits int) func(i int, to redis.Pipeliner)) {
	for _, bits := range widths {
		for _, way := range slices.Sorted(maps.Keys(ways)) {
			b.Run(fmt.Sprint(1<<bits, "slots/", way), func(b *testing.B) {
				server := open(b, "redis")
				server.crowd(bits)
				send := prepare(server, bits)
				server.load(scripts.WorkerAcquire)
				server.load(scripts.WorkerRenew)
				server.do("CONFIG", "RESETSTAT")
				pipe := server.client.Pipeline()
				i := 0
				for b.Loop() {
					i++
					send(i, pipe)
					if i%ways[way] == 0 {
						server.answered(pipe)
					}
				}
				server.answered(pipe)
				server.costs(b)
			})
		}
	}
}

// answered sends what was collected; each script must do what it was asked for.
func (b *box) answered(pipe redis.Pipeliner) {
	b.Helper()
	answers, err := pipe.Exec(b.Context())
	expect.NoError(b, "Exec", err)
	for _, answer := range answers {
		if script, is := answer.(*redis.Cmd); is {
			if reply, _ := script.Val().([]any); len(reply) == 0 || reply[0] != "granted" && reply[0] != "ok" {
				b.Fatalf("%v", script)
			}
		}
	}
}

// BenchmarkWorkerAcquire takes the one free slot of a ring, again and again, each time with another
// identity.
func BenchmarkWorkerAcquire(b *testing.B) {
	eachRing(b, func(server *box, bits int) func(int, redis.Pipeliner) {
		now := server.now()
		identity := "orders-0"
		nonce := fmt.Sprintf("nonce%017d", 0)
		return func(i int, to redis.Pipeliner) {
			// given back without a script, which would count
			to.HSet(server.Context(), poolKeys[0], "s:0", fmt.Sprintf("%s %d %d %d r %s", nonce, now, now, now*1000, identity))
			to.ZAdd(server.Context(), poolKeys[1], redis.Z{Score: float64(now), Member: "0"})
			nonce, identity = fmt.Sprintf("other%017d", i), "billing-"+strconv.Itoa(i)
			to.EvalSha(server.Context(), scripts.WorkerAcquire.SHA, poolKeys, lease{nonce: nonce, identity: identity, bits: bits}.args()...)
		}
	})
}

// BenchmarkWorkerRenew renews leases of a full ring, in no order.
func BenchmarkWorkerRenew(b *testing.B) {
	eachRing(b, func(server *box, bits int) func(int, redis.Pipeliner) {
		random := rand.New(rand.NewPCG(1, 2))
		var proofs [][]any
		for range min(1<<bits-1, 20_000) {
			id := strconv.Itoa(1 + random.IntN(1<<bits-1))
			record, _ := server.do("HGET", poolKeys[0], "s:"+id).(string)
			g := grant{id: id, ttl: hour}
			var state string
			if _, err := fmt.Sscan(record, &g.nonce, &g.from, &g.till, &g.fence, &state, &g.identity); err != nil {
				b.Fatalf("Sscan: got error %v, want none", err)
			}
			p := g.proof()
			p.bits, p.skew = bits, 1000
			proofs = append(proofs, p.args())
		}
		return func(i int, to redis.Pipeliner) {
			to.EvalSha(server.Context(), scripts.WorkerRenew.SHA, poolKeys, proofs[i%len(proofs)]...)
		}
	})
}
