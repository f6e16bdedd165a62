package scripts_test

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/scripts"
)

// The benchmarks tell what one round trip to a redis-server on this machine takes, one caller at a time. Those of worker ids also tell what the script costs the
// server, as server-us/op and server-median-us.

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

// widths are those of the rings that the scripts are measured on: 1,024 slots, 65,536 and 1,048,576.
var widths = []int{10, 16, 20}

// crowd fills a ring of that width: each slot is leased for an hour by a holder with an identity, but for slot 0, which is free.
func (b *box) crowd(bits int) {
	b.Helper()
	b.create(lease{bits: bits})
	const text = `local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
for id = ARGV[1], ARGV[2] - 1 do
  local till, state = string.format('%.0f', now + 3600000), 'h'
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

var cost = regexp.MustCompile(`cmdstat_evalsha:calls=(\d+),usec=(\d+)`)

// watch begins to count what scripts cost.
func (b *box) watch() {
	b.Helper()
	b.do("CONFIG", "SET", "slowlog-log-slower-than", 0, "slowlog-max-len", 20_000)
	b.do("SLOWLOG", "RESET")
	b.do("CONFIG", "RESETSTAT")
}

// costs reports the server's time for each call of a script since watch: the mean, and the median of the last ones, which another process does not disturb.
func (b *box) costs(bench *testing.B) {
	b.Helper()
	found := cost.FindStringSubmatch(b.do("INFO", "commandstats").(string))
	if found == nil {
		b.Fatal("no script was run")
	}
	bench.ReportMetric(float64(number(b, found[2]))/float64(number(b, found[1])), "server-us/op")
	var took []time.Duration
	calls, err := b.client.SlowLogGet(b.Context(), -1).Result()
	if err != nil {
		b.Fatal(err)
	}
	for _, call := range calls {
		if strings.EqualFold(call.Args[0], "EVALSHA") {
			took = append(took, call.Duration)
		}
	}
	slices.Sort(took)
	bench.ReportMetric(float64(took[len(took)/2].Microseconds()), "server-median-us")
}

// BenchmarkWorkerAcquire takes the one free slot of a ring, again and again.
func BenchmarkWorkerAcquire(b *testing.B) {
	for _, bits := range widths {
		b.Run(fmt.Sprint(1<<bits, "slots"), func(b *testing.B) {
			server := open(b, "redis")
			server.crowd(bits)
			free := func(id string, nonce string) { // without a script, which would count
				now := server.now()
				server.do("HSET", poolKeys[0], "s:"+id, fmt.Sprintf("%s %d %d %d r orders-%s", nonce, now, now, now*1000, id))
				server.do("ZADD", poolKeys[1], now, id)
			}
			server.watch()
			i := 0
			for b.Loop() {
				i++
				nonce := fmt.Sprintf("other%017d", i)
				g := server.lease(lease{nonce: nonce, identity: "billing-" + strconv.Itoa(i), bits: bits})
				free(g.id, nonce)
			}
			server.costs(b)
		})
	}
}

// BenchmarkWorkerRenew renews leases of a full ring, in no order.
func BenchmarkWorkerRenew(b *testing.B) {
	for _, bits := range widths {
		b.Run(fmt.Sprint(1<<bits, "slots"), func(b *testing.B) {
			server := open(b, "redis")
			server.crowd(bits)
			random := rand.New(rand.NewPCG(1, 2))
			var grants []grant
			for range min(1<<bits-1, 20_000) {
				id := strconv.Itoa(1 + random.IntN(1<<bits-1))
				record, _ := server.do("HGET", poolKeys[0], "s:"+id).(string)
				var g grant
				var state string
				if _, err := fmt.Sscan(record, &g.nonce, &g.from, &g.till, &g.fence, &state, &g.identity); err != nil {
					b.Fatal(err)
				}
				g.id, g.ttl = id, hour
				grants = append(grants, g)
			}
			server.watch()
			i := 0
			for b.Loop() {
				p := grants[i%len(grants)].proof()
				p.bits, p.skew = bits, 1000
				word(b, server.prove(p), "ok", 3)
				i++
			}
			server.costs(b)
		})
	}
}
