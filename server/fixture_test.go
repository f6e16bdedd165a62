package server_test

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/onstore"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/scripts"
	"github.com/coatcheck/coatcheck/server"
)

// forAnHour is a claim whose lease no test outlives, however busy the machine is.
const forAnHour = `{"fingerprint":"f","lease_ms":3600000}`

// fixture is a service with something of everything in its store.
type fixture struct {
	s    *service
	fill *strings.Replacer
	made map[string]string
}

func newFixture(t *testing.T, store *redisstore.Store) *fixture {
	t.Helper()
	return newFixtureOf(t, store, server.Config{})
}

func newFixtureOf(t *testing.T, store *redisstore.Store, config server.Config) *fixture {
	t.Helper()
	config.Store, config.Dev = store, true
	f := &fixture{s: serve(t, config), made: map[string]string{}}
	f.put(t, store, "text", "SET", "hello")
	f.put(t, store, "float", "SET", "1.5")
	f.put(t, store, "wide", "SET", "9223372036854775808")
	f.put(t, store, "empty", "SET", "")
	f.put(t, store, "full", "SET", "9223372036854775807")
	f.put(t, store, "nearly", "SET", "9223372036854775800")
	f.put(t, store, "hash", "HSET", "f", "1")
	f.put(t, store, "list", "RPUSH", "1")
	f.put(t, store, "set", "SADD", "1")
	f.put(t, store, "zset", "ZADD", "1", "1")
	must[api.Incremented](t, f.s, 200, "POST", "/incr/k?by=3", "", "Idempotency-Key: once")

	f.made["{issued}"] = f.s.issue(t, `{}`)
	f.made["{claimed}"] = f.s.issue(t, `{}`)
	f.made["{lease}"] = f.s.claim(t, f.made["{claimed}"], forAnHour).Lease
	f.made["{done}"] = f.s.issue(t, `{}`)
	f.made["{done-lease}"] = f.s.claim(t, f.made["{done}"], forAnHour).Lease
	must[nothing](t, f.s, 204, "POST", "/token/"+f.made["{done}"]+"/complete", `{"status":200,"body_base64":"aGk="}`, "Lease-Token: "+f.made["{done-lease}"])

	f.made["{w0}"] = f.worker(t, "pool", 0)
	f.made["{w1}"] = f.worker(t, "pool", 1)
	f.made["{other0}"] = f.worker(t, "other", 0)
	must[api.Payment](t, f.s, 201, "POST", "/payments", `{"amount":5,"currency":"EUR","to":"acct_1"}`, "Idempotency-Key: good")

	f.refill()
	return f
}

// refill has requests filled with all that was made by now.
func (f *fixture) refill() {
	var pairs []string
	for name, value := range f.made {
		pairs = append(pairs, name, value)
	}
	f.fill = strings.NewReplacer(pairs...)
}

// filled is a request with what was made in place of its name in braces.
func (f *fixture) filled(c call) call {
	c.path = f.fill.Replace(c.path)
	if len(c.body) < 10_000 { // what is longer is so by its own nature
		c.body = f.fill.Replace(c.body)
	}
	c.header = slices.Clone(c.header)
	for i, header := range c.header {
		c.header[i] = f.fill.Replace(header)
	}
	return c
}

// worker leases a slot of a pool that has two.
func (f *fixture) worker(t testing.TB, pool string, want int) string {
	t.Helper()
	lease := must[api.WorkerLease](t, f.s, 201, "POST", "/worker/"+pool, `{"ttl_ms":3600000,"layout":"41/1/12"}`)
	if lease.WorkerID != want {
		t.Fatalf("POST /worker/%s: got worker id %d, want %d", pool, lease.WorkerID, want)
	}
	return lease.Lease
}

// lock takes a lock for an hour, and waits until the list has it.
func (f *fixture) lock(t testing.TB, name, body string) string {
	t.Helper()
	lease := f.s.lock(t, name, body).Lease
	expect.Eventually(t, "GET /lock lists "+name, func() bool {
		return strings.Contains(string(f.s.do(t, "GET", "/lock", "").body), `"name":"`+name+`"`)
	})
	return lease
}

// put gives a counter's key a value that no counter writes.
func (f *fixture) put(t testing.TB, store *redisstore.Store, key, command string, value ...any) {
	t.Helper()
	run(t, store, "redis.call('"+command+"', KEYS[1], unpack(ARGV)) return {'ok'}", onstore.Key(store, "counter", key), value...)
}

// run runs a script of the test's own on a store.
func run(t testing.TB, store *redisstore.Store, source, key string, args ...any) scripts.Reply {
	t.Helper()
	script := scripts.New("test", source)
	reply, err := onstore.Run(t.Context(), store, script, []string{key}, args...)
	if err != nil {
		t.Fatalf("running a script on %s with %v: %v\n%s", key, args, err, source)
	}
	return reply
}

// dumpSource reads everything that a Redis holds: the word "ok", then each key and what it has, in
// an order that is always the same.
const dumpSource = `
local all = {'ok'}
local keys = redis.call('KEYS', '*')
table.sort(keys)
local reads = {
	string = {'GET'}, hash = {'HGETALL'}, set = {'SMEMBERS'},
	list = {'LRANGE', 0, -1}, zset = {'ZRANGE', 0, -1, 'WITHSCORES'},
}
for _, key in ipairs(keys) do
	local kind = redis.call('TYPE', key).ok
	local how = reads[kind]
	local has = redis.call(how[1], key, unpack(how, 2))
	if kind == 'hash' then
		local fields = {}
		for i = 1, #has, 2 do
			table.insert(fields, has[i] .. '=' .. has[i + 1])
		end
		has = fields
	end
	if kind == 'hash' or kind == 'set' then
		table.sort(has)
	end
	if type(has) == 'table' then
		has = table.concat(has, ' ')
	end
	table.insert(all, key)
	table.insert(all, kind .. ' until ' .. redis.call('PEXPIRETIME', key) .. ': ' .. has)
end
return all`

// dump is everything that a Redis holds, by key: content and expiry.
func dump(t testing.TB, client *redis.Client) map[string]string {
	t.Helper()
	listed, err := client.Eval(context.WithoutCancel(t.Context()), dumpSource, nil).StringSlice()
	expect.NoError(t, "reading all of Redis", err)
	return byKey(listed)
}

// dumpOf is everything that a store holds, by key. The embedded one has no other client.
func dumpOf(t testing.TB, store *redisstore.Store) map[string]string {
	t.Helper()
	return byKey(run(t, store, dumpSource, onstore.Key(store, "counter", "k")))
}

// sameEnd compares entries of a dump whose records end at the same time, give or take some
// milliseconds. Redis keeps the moment of the end. The embedded store keeps the time that is left,
// and subtracts the elapsed time at each tick: on a busy machine a tick comes late.
func sameEnd(about int64) cmp.Option {
	return cmp.Comparer(func(a, b string) bool {
		kindA, restA, _ := strings.Cut(a, " until ")
		kindB, restB, _ := strings.Cut(b, " until ")
		endA, hasA, _ := strings.Cut(restA, ": ")
		endB, hasB, _ := strings.Cut(restB, ": ")
		atA, errA := strconv.ParseInt(endA, 10, 64)
		atB, errB := strconv.ParseInt(endB, 10, 64)
		if errA != nil || errB != nil {
			return a == b
		}
		return kindA == kindB && hasA == hasB && max(atA, atB)-min(atA, atB) <= about
	})
}

// lastUsed is when counters were used last, which each service notes every ten seconds.
var lastUsed = regexp.MustCompile(`( \d+ \d+ \d+) \d+( \d+)$`)

// byKey takes the answer of dumpSource apart.
func byKey(listed []string) map[string]string {
	state := map[string]string{}
	for pair := range slices.Chunk(listed[1:], 2) {
		if strings.HasSuffix(pair[0], "counters:{marker}") {
			pair[1] = lastUsed.ReplaceAllString(pair[1], "$1 …$2")
		}
		state[pair[0]] = pair[1]
	}
	return state
}

// seenThroughAPI is what the service tells of everything that the fixture made, without what moves
// by itself.
func (f *fixture) seenThroughAPI(t testing.TB) map[string]string {
	t.Helper()
	state := map[string]string{}
	for _, path := range []string{
		"/counter/k", "/counter/text", "/counter/hash", "/counter/full", "/counter/nearly", "/counter/unused", "/counter/a",
		"/token/{issued}", "/token/{claimed}", "/token/{done}", "/worker/pool", "/worker/other", "/worker/unused", "/worker", "/payments",
	} {
		a := f.s.do(t, "GET", f.fill.Replace(path), "", "X-Request-Id: same")
		state[path] = moving.ReplaceAllString(fmt.Sprintf("%d %s", a.status, a.body), "")
	}
	return state
}
