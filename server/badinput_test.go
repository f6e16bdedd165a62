package server_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/coatcheck/coatcheck/internal/redistest"
	"github.com/coatcheck/coatcheck/internal/storetest"
	"github.com/coatcheck/coatcheck/internal/wire"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/scripts"
	"github.com/coatcheck/coatcheck/server"
)

// bad is a request that must be refused and change nothing. Names in braces stand for what the fixture made.
type bad struct {
	call
	code  wire.Code
	field string // what the problem names, "" = nothing
	allow string // methods that a 405 lists
	wait  bool   // the answer says how long to wait
}

func TestBadInputIsRefusedWithItsCodeAndChangesNothing(t *testing.T) {
	groups := map[string][]bad{
		"names": badNames(), "paths": badPaths(), "methods": badMethods(), "queries": badQueries(), "documents": badDocuments(), "tokens": badTokenFields(),
		"workers": badWorkerFields(), "ids": badIDs(), "numbers": badNumbers(), "segments": badSegments(), "payments": badPayments(), "headers": badHeaders(), "state": badStates(), "sizes": badSizes(),
	}
	t.Run("embedded", func(t *testing.T) {
		f := newFixture(t, storetest.Open(t, redisstore.Config{}))
		for name, rows := range groups {
			t.Run(name, func(t *testing.T) {
				before := f.seenThroughAPI(t)
				f.refuseAll(t, rows, func(testing.TB) map[string]string { return nil })
				wantSame(t, before, f.seenThroughAPI(t))
			})
		}
	})
	t.Run("redis", func(t *testing.T) {
		redis := redistest.Start(t)
		store := storetest.Open(t, redisstore.Config{URL: redis.URL()})
		f := newFixture(t, store)
		f.put(t, store, "zeros", "SET", "007") // miniredis takes them for integers
		f.put(t, store, "plus", "SET", "+1")
		record := f.claimedAndGivenBack(t, redis.Client())
		groups["strict integers"] = badIntegers()
		for name, rows := range groups {
			t.Run(name, func(t *testing.T) {
				f.refuseAll(t, rows, func(t testing.TB) map[string]string {
					state := dump(t, redis.Client())
					delete(state, record)
					return state
				})
			})
		}
	})
}

// claimedAndGivenBack makes a payment that fails its check and tells the record of its key. Such a payment claims its key and gives it back, which
// leaves a record that says so, and nothing else.
func (f *fixture) claimedAndGivenBack(t testing.TB, client *redis.Client) string {
	before := dump(t, client)
	checkProblem(t, f.s.do(t, "POST", "/payments", `{"amount":0}`, "Idempotency-Key: bad"), "invalid-request")
	var added []string
	for key := range dump(t, client) {
		if _, known := before[key]; !known {
			added = append(added, key)
		}
	}
	if len(added) != 1 {
		t.Fatalf("a payment that failed its check left %q", added)
	}
	return added[0]
}

// fixture is a service with something of everything in its store.
type fixture struct {
	s    *service
	fill *strings.Replacer
	made map[string]string
}

func newFixture(t *testing.T, store *redisstore.Store) *fixture {
	f := &fixture{s: serve(t, server.Config{Store: store, Dev: true}), made: map[string]string{}}
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
	must[wire.Incremented](t, f.s, 200, "POST", "/incr/k?by=3", "", "Idempotency-Key: once")

	f.made["{issued}"] = f.s.issue(t, `{}`)
	f.made["{claimed}"] = f.s.issue(t, `{}`)
	f.made["{lease}"] = f.s.claim(t, f.made["{claimed}"], `{"fingerprint":"f"}`).Lease
	f.made["{done}"] = f.s.issue(t, `{}`)
	f.made["{done-lease}"] = f.s.claim(t, f.made["{done}"], `{"fingerprint":"f"}`).Lease
	must[nothing](t, f.s, 204, "POST", "/token/"+f.made["{done}"]+"/complete", `{"status":200,"body_base64":"aGk="}`, "Lease-Token: "+f.made["{done-lease}"])

	f.made["{w0}"] = f.worker(t, "pool", 0)
	f.made["{w1}"] = f.worker(t, "pool", 1)
	f.made["{other0}"] = f.worker(t, "other", 0)
	must[wire.Payment](t, f.s, 201, "POST", "/payments", `{"amount":5,"currency":"EUR","to":"acct_1"}`, "Idempotency-Key: good")

	var pairs []string
	for name, value := range f.made {
		pairs = append(pairs, name, value)
	}
	f.fill = strings.NewReplacer(pairs...)
	return f
}

// worker leases a slot of a pool that has two.
func (f *fixture) worker(t testing.TB, pool string, want int) string {
	t.Helper()
	lease := must[wire.WorkerLease](t, f.s, 201, "POST", "/worker/"+pool, `{"ttl_ms":600000,"layout":"41/1/12"}`)
	if lease.WorkerID != want {
		t.Fatalf("%s: worker id %d, want %d", pool, lease.WorkerID, want)
	}
	return lease.Lease
}

// put gives a counter's key a value that no counter writes.
func (f *fixture) put(t testing.TB, store *redisstore.Store, key, command string, value ...any) {
	t.Helper()
	put := &scripts.Script{
		Name:   "test_put",
		Source: "redis.call('" + command + "', KEYS[1], unpack(ARGV)) return {'ok'}",
		SHA:    strings.Repeat("0", 40), // not known: the store sends the source
	}
	if _, err := store.Run(t.Context(), put, []string{store.Key("counter", key)}, value...); err != nil {
		t.Fatal(err)
	}
}

func (f *fixture) refuseAll(t *testing.T, rows []bad, state func(testing.TB) map[string]string) {
	before := state(t)
	for _, row := range rows {
		row.path, row.body = f.fill.Replace(row.path), f.fill.Replace(row.body)
		row.header = slices.Clone(row.header)
		for i, header := range row.header {
			row.header[i] = f.fill.Replace(header)
		}
		t.Run(title(row.call), func(t *testing.T) {
			f.refuse(t, row)
			after := state(t)
			wantSame(t, before, after)
			before = after
		})
	}
}

func (f *fixture) refuse(t *testing.T, row bad) {
	a, err := f.s.send(t.Context(), row.call)
	if err != nil {
		t.Fatal(err)
	}
	if row.method == "HEAD" {
		if a.status != contract[row.code].status || len(a.body) != 0 {
			t.Errorf("%d %s", a.status, a.body)
		}
	} else if problem := checkProblem(t, a, row.code); problem.Field != row.field {
		t.Errorf("field %q, want %q: %.300s", problem.Field, row.field, a.body)
	}
	for method := range strings.FieldsSeq(row.allow) {
		if !strings.Contains(a.header.Get("Allow"), method) {
			t.Errorf("Allow %q lacks %s", a.header.Get("Allow"), method)
		}
	}
	if row.wait != (a.header.Get("Retry-After") != "") {
		t.Errorf("Retry-After %q", a.header.Get("Retry-After"))
	}
}

func title(c call) string {
	text := fmt.Sprintf("%s %.40q %.60q %.60q", c.method, c.path, c.body, strings.Join(c.header, ", "))
	return strings.ReplaceAll(text, "/", "∕")
}

// dump is everything that a Redis holds, by key: content and expiry.
func dump(t testing.TB, client *redis.Client) map[string]string {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	keys, err := client.Keys(ctx, "*").Result()
	if err != nil {
		t.Fatal(err)
	}
	kind, expiry := map[string]*redis.StatusCmd{}, map[string]*redis.DurationCmd{}
	_, err = client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for _, key := range keys {
			kind[key], expiry[key] = pipe.Type(ctx, key), pipe.PExpireTime(ctx, key)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	content := map[string]redis.Cmder{}
	_, err = client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for _, key := range keys {
			content[key] = read(ctx, pipe, kind[key].Val(), key)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	state := map[string]string{}
	for _, key := range keys {
		state[key] = fmt.Sprintf("%s until %v: %s", kind[key].Val(), expiry[key].Val(), content[key])
	}
	return state
}

// read asks for all that a key holds, in an order that is always the same.
func read(ctx context.Context, pipe redis.Pipeliner, kind, key string) redis.Cmder {
	switch kind {
	case "hash":
		return pipe.HGetAll(ctx, key)
	case "zset":
		return pipe.ZRangeWithScores(ctx, key, 0, -1)
	case "set":
		return pipe.SMembersMap(ctx, key)
	case "list":
		return pipe.LRange(ctx, key, 0, -1)
	}
	return pipe.Get(ctx, key)
}

func wantSame(t testing.TB, before, after map[string]string) {
	t.Helper()
	for key, was := range before {
		if is, there := after[key]; is != was {
			t.Errorf("%s changed (there: %v):\n%s\n%s", key, there, was, is)
		}
	}
	for key, is := range after {
		if _, there := before[key]; !there {
			t.Errorf("%s is new: %s", key, is)
		}
	}
}

// seenThroughAPI is what the service tells of everything that the fixture made, without what moves by itself.
func (f *fixture) seenThroughAPI(t testing.TB) map[string]string {
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
