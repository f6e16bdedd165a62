package scripts_test

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/scripts"
)

var poolKeys = []string{"{p}", "{p}:ends", "{p}:names"}

// headParts are the words of a pool's head, in their order. The head is one field of the pool's
// hash, "pool", and each of its records is one more.
var headParts = []string{"layout", "epoch", "datacenter", "bits", "ttl", "records", "next", "fence", "incarnation", "quarantine", "longest"}

// lease is what worker_acquire is asked with. The zero value of each field means the default beside
// it.
type lease struct {
	nonce, identity                                string
	skew                                           int64  // none
	newPools                                       string // "trust"
	cooldown                                       int64  // none
	wantLayout, wantEpoch, wantDatacenter, wantTTL string // whatever the pool has
	layout, epoch                                  string // "41/10/12", "1700000000000"
	datacenter, bits                               int    // 0, 2
	ttl                                            int64  // an hour
	longest                                        int64  // not said
}

func (l lease) withDefaults() lease {
	if l.newPools == "" {
		l.newPools = "trust"
	}
	if l.layout == "" {
		l.layout = "41/10/12"
	}
	if l.epoch == "" {
		l.epoch = "1700000000000"
	}
	if l.bits == 0 {
		l.bits = 2
	}
	if l.ttl == 0 {
		l.ttl = hour
	}
	return l
}

func (l lease) args() []any {
	l = l.withDefaults()
	return []any{
		l.nonce, l.identity, l.skew, l.newPools, l.cooldown, l.wantLayout, l.wantEpoch, l.wantDatacenter, l.wantTTL,
		l.layout, l.epoch, l.datacenter, l.bits, l.ttl, l.longest,
	}
}

// acquire returns the reply, that of a grant with words of the pool's head in place of the head:
// granted, worker id, not before, not after, fence, ttl, now, layout, epoch, datacenter, bits,
// first.
func (b *box) acquire(l lease) []string {
	b.Helper()
	reply := b.run(scripts.WorkerAcquire, poolKeys, l.args()...)
	if reply[0] != "granted" {
		return reply
	}
	word(b, reply, "granted", 7)
	if head := b.do("HGET", poolKeys[0], "pool"); reply[6] != head {
		b.Fatalf("told of the pool %q, and its head is %q", reply[6], head)
	}
	head := strings.Split(reply[6], " ")
	part := func(name string) string { return head[slices.Index(headParts, name)] }
	return append(reply[:5:5], part("ttl"), reply[5], part("layout"), part("epoch"), part("datacenter"), part("bits"), reply[7])
}

// grant is a granted lease, as its holder knows it.
type grant struct {
	nonce, id, identity string
	from, till          int64
	fence, ttl          int64
}

// lease acquires and takes the grant apart.
func (b *box) lease(l lease) grant {
	b.Helper()
	reply := b.acquire(l)
	word(b, reply, "granted", 11)
	return taken(b, l, reply)
}

func taken(t testing.TB, l lease, reply []string) grant {
	t.Helper()
	return grant{l.nonce, reply[1], l.identity, number(t, reply[2]), number(t, reply[3]), number(t, reply[4]), number(t, reply[5])}
}

// renew renews a grant without a proof.
func (b *box) renew(g grant, ttl any) []string {
	b.Helper()
	return b.run(scripts.WorkerRenew, poolKeys, g.id, g.nonce, g.from, ttl, 0, "trust", "", "", "", "", "", "", "", 0)
}

// proof is what a holder tells with a renewal, in the order of ARGV.
type proof struct {
	id, nonce, from, ttl, skew, newPools, till, fence, identity, layout, epoch, datacenter, bits any
	longest                                                                                      int64
}

func (p proof) args() []any {
	return []any{p.id, p.nonce, p.from, p.ttl, p.skew, p.newPools, p.till, p.fence, p.identity, p.layout, p.epoch, p.datacenter, p.bits, p.longest}
}

// proof is the whole proof for a grant of a pool as lease makes it.
func (g grant) proof() proof {
	pool := lease{}.withDefaults()
	return proof{g.id, g.nonce, g.from, g.ttl, 0, "wait", g.till, g.fence, g.identity, pool.layout, pool.epoch, pool.datacenter, pool.bits, 0}
}

func (b *box) prove(p proof) []string {
	b.Helper()
	return b.run(scripts.WorkerRenew, poolKeys, p.args()...)
}

// giveBack releases a grant of which nothing was used later than now.
func (b *box) giveBack(g grant) []string {
	b.Helper()
	return b.releaseUsed(g, "", 0)
}

func (b *box) releaseUsed(g grant, used any, ahead int64) []string {
	b.Helper()
	return b.run(scripts.WorkerRelease, poolKeys[:2], g.id, g.nonce, g.from, used, ahead)
}

// pass moves all times of a pool into the past, which is what the passing of time looks like to it.
func (b *box) pass(ms int64) {
	b.Helper()
	const text = `local function back(n) return string.format('%.0f', math.max(tonumber(n) - ARGV[1], 0)) end
local fields = redis.call('HGETALL', KEYS[1])
for i = 1, #fields, 2 do
  if string.sub(fields[i], 1, 2) == 's:' then
    local nonce, from, till, rest = string.match(fields[i + 1], '^(%S+) (%d+) (%d+) (.*)$')
    redis.call('HSET', KEYS[1], fields[i], nonce .. ' ' .. back(from) .. ' ' .. back(till) .. ' ' .. rest)
  else
    local before, quarantine, longest = string.match(fields[i + 1], '^(.* )(%d+)( %d+)$')
    if before then -- it was not spoilt
      redis.call('HSET', KEYS[1], fields[i], before .. back(quarantine) .. longest)
    end
  end
end
local ends = redis.call('ZRANGE', KEYS[2], 0, -1, 'WITHSCORES')
for i = 1, #ends, 2 do
  redis.call('ZADD', KEYS[2], back(ends[i + 1]), ends[i])
end
return 1`
	b.do("EVAL", text, 2, poolKeys[0], poolKeys[1], ms)
}

// past is a grant after pass.
func (g grant) past(ms int64) grant {
	g.from -= ms
	g.till -= ms
	return g
}

// words are the words of the pool's head as they are written.
func (b *box) words() []string {
	b.Helper()
	text, _ := b.do("HGET", poolKeys[0], "pool").(string)
	words := strings.Split(text, " ")
	if len(words) != len(headParts) || slices.Contains(words, "") {
		b.Fatalf("the pool's head is %q", text)
	}
	return words
}

// head is the pool's head by its parts. An empty one is "".
func (b *box) head() map[string]string {
	b.Helper()
	parts := map[string]string{}
	for i, word := range b.words() {
		if word == "-" {
			word = ""
		}
		parts[headParts[i]] = word
	}
	return parts
}

// setHead gives one part of the pool's head another value.
func (b *box) setHead(part string, value any) {
	b.Helper()
	words := b.words()
	words[slices.Index(headParts, part)] = fmt.Sprint(value)
	b.do("HSET", poolKeys[0], "pool", strings.Join(words, " "))
}

// spoil makes the pool's head one that cannot be read: a part is another word, or with "" it is
// not there.
func (b *box) spoil(part, word string) {
	b.Helper()
	words := b.words()
	at := slices.Index(headParts, part)
	words = slices.Replace(words, at, at+1, strings.Fields(word)...)
	b.do("HSET", poolKeys[0], "pool", strings.Join(words, " "))
}

// record is a slot's record; nil if there is none.
func (b *box) record(id string) []string {
	b.Helper()
	text := b.fields(poolKeys[0])["s:"+id]
	if text == "" {
		return nil
	}
	return strings.SplitN(text, " ", 6)
}

// sound fails the test unless the pool's head is whole and counts its records, and the index knows
// every one of them by its end.
func (b *box) sound() {
	b.Helper()
	b.soundBy(b.now())
}

// soundBy is sound by another clock: no slot that was released is free later than now.
func (b *box) soundBy(now int64) {
	b.Helper()
	fields := b.fields(poolKeys[0])
	records := map[string]string{}
	for field, value := range fields {
		if id, is := strings.CutPrefix(field, "s:"); is {
			records[id] = value
		} else if field != "pool" {
			b.Fatalf("the pool has a field %s", field)
		}
	}
	if counted := b.head()["records"]; len(fields) != 1+len(records) || counted != strconv.Itoa(len(records)) {
		b.Fatalf("the pool has %d fields for %d records and counts %s", len(fields), len(records), counted)
	}
	if n := b.do("ZCARD", poolKeys[1]); n != int64(len(records)) {
		b.Fatalf("the index has %v of %d records", n, len(records))
	}
	for _, id := range slices.Sorted(maps.Keys(records)) {
		score, _ := b.do("ZSCORE", poolKeys[1], id).(string)
		words := strings.SplitN(records[id], " ", 6)
		if words[4] == "h" && score != words[2] || words[4] == "r" && number(b, score) > now {
			b.Fatalf("slot %s is %q, and %q in the index", id, words, score)
		}
	}
}

// A process whose settings allow less than the pool's TTL, or than others have announced, gets no
// worker id, and changes nothing.
func TestProcessThatAllowsLessThanOthersIsRefused(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		b.lease(lease{nonce: "n1", longest: 2 * hour})
		before := b.look(poolKeys...)
		want(t, b.acquire(lease{nonce: "n2", longest: hour}), "longest", "7200000")
		want(t, b.acquire(lease{nonce: "n2", longest: minute}), "longest", "7200000")
		b.same(before)
	})
}

// Of a layout whose timestamps are over nothing is granted or renewed, and nothing changes.
func TestLayoutThatHasEndedGrantsAndRenewsNothing(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		held := b.lease(lease{nonce: "n1"})
		shaped := func(from, to string) {
			b.do("HSET", poolKeys[0], "pool", strings.Replace(b.fields(poolKeys[0])["pool"], from, to, 1))
		}
		shaped("41/10/12 1700000000000", "31/10/12@s 0") // seconds from 1970 to 2038
		word(t, b.renew(held, ""), "ok", 3)
		shaped("31/10/12@s", "30/10/12@s") // to 2004
		before := b.look(poolKeys...)
		want(t, b.acquire(lease{nonce: "n2"}), "ended", "30/10/12@s", "0")
		want(t, b.renew(held, ""), "ended", "30/10/12@s", "0")
		b.same(before)
	})
}
