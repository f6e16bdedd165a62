package scripts_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/coatcheck/coatcheck/internal/expect"
	"github.com/coatcheck/coatcheck/scripts"
)

// A fast path saves time and decides nothing: where it answers, the rest of the script replies and
// writes the same; where it does not, it has written nothing.
func TestFastPathsOfWorkerIDsAnswerAsTheRest(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		answersAsTheRest(t, b, scripts.WorkerAcquire, ring.acquire)
		answersAsTheRest(t, b, scripts.WorkerRenew, ring.renew)
	})
}

func answersAsTheRest(t *testing.T, b *box, script *scripts.Script, ask func(ring, *rapid.T) []any) {
	t.Helper()
	fast, rest := divide(t, script)
	life, answers := b.replid(), 0
	rapid.Check(t, func(rt *rapid.T) {
		b := &box{shrinking{t, rt}, b.kind, b.client, nil}
		for range 10 {
			r := drawRing(rt, life)
			args := append(ask(r, rt), standing/1000, standing%1000*1000+456)
			reply, left := r.run(b, fast, args)
			wantReply, want := r.run(b, rest, args)
			if reply == "[general] <nil>" {
				wantReply, want = r.run(b, "return {'general'}", nil)
			} else {
				answers++
			}
			asked := fmt.Sprintf("%s %q of %v", script.Name, args, r)
			expect.MustEqual(b, asked+": reply of the fast path", reply, wantReply)
			expect.MustEqual(b, asked+": the keys after the fast path", left, want)
		}
	})
	if answers < 50 {
		t.Errorf("%s: %d answers of its fast path: the test tells nothing", script.Name, answers)
	}
}

// divide returns a script's fast path, which replies `general` where it gives no answer, and the
// script without it. The time is told by the last two arguments of each.
func divide(t *testing.T, script *scripts.Script) (fast, rest string) {
	t.Helper()
	const condition = "\nif stored[1] and "
	source := strings.Replace(script.Source, "redis.call('TIME')", "{ARGV[#ARGV - 1], ARGV[#ARGV]}", 1)
	part := readAll(t, "lib/worker_*_plain.lua")[script.Name+"_plain"]
	before, _, found := strings.Cut(source, part)
	if !found || part == "" || strings.Count(source, condition) != 1 {
		t.Fatalf("%s: want one fast path, which begins with %q", script.Name, condition)
	}
	return before + part + "return {'general'}", strings.Replace(source, condition, "\nif false and ", 1)
}

// standing is the time at which rings are drawn, in milliseconds since 1970.
const standing = int64(1_800_000_000_123)

// ring is a pool as it is stored. Each of its slots has a record, and at most one thing is not as
// the scripts leave it.
type ring struct {
	head    []string
	records map[string][]string // by worker id
	ends    map[string]int64
	names   map[string]string
}

// often draws the first value, and one of the others now and then.
func often[T any](rt *rapid.T, what string, usual T, others ...T) T {
	if rapid.IntRange(0, 9).Draw(rt, what+" is another") > 0 {
		return usual
	}
	return rapid.SampledFrom(others).Draw(rt, what)
}

func drawRing(rt *rapid.T, life string) ring {
	bits := rapid.IntRange(1, 2).Draw(rt, "bits")
	r := ring{records: map[string][]string{}, ends: map[string]int64{}, names: map[string]string{}}
	quarantine := rapid.SampledFrom([]int64{0, standing - 1, standing, standing + minute}).Draw(rt, "quarantine")
	r.head = strings.Fields(fmt.Sprintln("41/10/12 1700000000000 0", bits, hour, 1<<bits, 1<<bits, standing*1000-hour, life, quarantine, hour))
	for n := range 1 << bits {
		id := fmt.Sprint(n)
		state := rapid.SampledFrom([]string{"h", "h", "r"}).Draw(rt, "state")
		till := standing + rapid.SampledFrom([]int64{-minute, -1, 0, 1, 1, minute, minute, hour, hour, hour + 1}).Draw(rt, "till")
		identity := rapid.SampledFrom([]string{"", "i" + id, "i0"}).Draw(rt, "identity")
		r.records[id] = strings.Split(fmt.Sprintf("n%s %d %d %d %s %s", id, standing-hour, till, standing*1000-hour, state, identity), " ")
		r.ends[id] = till
		if state == "r" {
			r.ends[id] = min(till, standing)
		}
		r.names["n:n"+id] = id
		if identity != "" {
			r.names["i:"+identity] = id
		}
	}
	return r.spoilt(rt)
}

// spoilt is the ring, or now and then one that the scripts do not leave so.
func (r ring) spoilt(rt *rapid.T) ring {
	id := rapid.SampledFrom(slices.Sorted(maps.Keys(r.records))).Draw(rt, "slot")
	draw := func(values ...any) string { return fmt.Sprint(rapid.SampledFrom(values).Draw(rt, "value")) }
	switch rapid.IntRange(0, 15).Draw(rt, "spoilt") {
	case 0, 1, 2, 3:
		part := rapid.SampledFrom(headParts).Draw(rt, "part")
		r.head[slices.Index(headParts, part)] = draw(map[string][]any{
			"layout": {"-", "x", "0 0"}, "epoch": {"-", "1"}, "datacenter": {"-", "7"}, "bits": {1, 3}, "ttl": {0, 1, minute, 3 * hour},
			"records": {0, 1, 9}, "next": {0, 1, 9}, "fence": {0, standing*1000 + 455, standing*1000 + 456, standing*1000 + hour}, "incarnation": {"-", "before"},
			"quarantine": {1, standing + 1}, "longest": {0, minute, 2 * hour},
		}[part]...)
	case 4:
		r.head = nil
	case 5:
		delete(r.records, id)
	case 6:
		delete(r.ends, id)
	case 7:
		delete(r.names, draw("i:i"+id, "n:n"+id))
	case 8, 9, 10:
		r.names[draw("i:i"+id, "n:n"+id, "i:new", "n:new")] = draw("0", "1", "7")
	}
	return r
}

// acquire draws arguments of worker_acquire.
func (r ring) acquire(rt *rapid.T) []any {
	return lease{
		nonce: often(rt, "nonce", "new", "n0", "n1"), identity: often(rt, "identity", "new", "", "i0", "i1"),
		skew: minute, newPools: "wait", cooldown: often(rt, "cool-down", 0, 1, minute),
		wantLayout: often(rt, "layout", "", "x", "41/10/12"), wantEpoch: often(rt, "epoch", "", "1", "1700000000000"),
		wantDatacenter: often(rt, "datacenter", "", "7", "0"), wantTTL: often(rt, "ttl", "", "1", fmt.Sprint(hour)),
		longest: often(rt, "longest", 0, minute, hour, 2*hour),
	}.args()
}

// renew draws arguments of worker_renew, most often those of a holder.
func (r ring) renew(rt *rapid.T) []any {
	id := rapid.SampledFrom([]string{"0", "1"}).Draw(rt, "id")
	p := grant{nonce: often(rt, "nonce", "n"+id, "n0", "new"), id: id, from: often(rt, "from", standing-hour, standing), fence: standing*1000 - hour}.proof()
	p.ttl, p.skew = often[any](rt, "ttl", "", hour, minute), minute
	p.longest = rapid.SampledFrom([]int64{0, minute, hour, 2 * hour}).Draw(rt, "longest")
	p.till = rapid.SampledFrom([]any{"", "soon", standing + minute, standing + hour, standing + hour + 1}).Draw(rt, "told end")
	if record := r.records[id]; record != nil {
		p.till = often(rt, "end", any(record[2]), p.till)
	}
	return p.args()
}

// run runs a script on the ring, and returns its reply and the keys as it leaves them.
func (r ring) run(b *box, text string, args []any) (reply string, keys []string) {
	b.Helper()
	pipe := b.client.Pipeline()
	pipe.Del(b.Context(), poolKeys...)
	if r.head != nil {
		pipe.HSet(b.Context(), poolKeys[0], "pool", strings.Join(r.head, " "))
	}
	for id, record := range r.records {
		pipe.HSet(b.Context(), poolKeys[0], "s:"+id, strings.Join(record, " "))
	}
	for id, end := range r.ends {
		pipe.ZAdd(b.Context(), poolKeys[1], redis.Z{Score: float64(end), Member: id})
	}
	for name, id := range r.names {
		pipe.HSet(b.Context(), poolKeys[2], name, id)
	}
	if _, err := pipe.Exec(b.Context()); err != nil {
		b.Fatal(err)
	}
	answer, err := b.client.Eval(b.Context(), text, poolKeys, args...).Result()
	return fmt.Sprint(answer, " ", err), []string{b.content("hash", poolKeys[0]), b.content("zset", poolKeys[1]), b.content("hash", poolKeys[2])}
}
