package idempotency

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
)

// seed writes the records ARGV[2] to ARGV[3] as the scripts of tokens leave them, in the state
// ARGV[4], with names that begin with ARGV[5]. Where ARGV[6] is not 0, it puts them on the list of
// operations under way, KEYS[1]: each lease ends a millisecond after the one before, and the record
// a day later.
const seed = `
local ends = tonumber(ARGV[6])
for i = tonumber(ARGV[2]), tonumber(ARGV[3]) do
  local operation, lease_end = ARGV[5] .. string.format('%031d', i), string.format('%d', ends + i)
  redis.call('SET', ARGV[1] .. '{' .. operation .. '}', ARGV[4] .. '\t\t' .. lease_end .. string.rep('\t', 7) .. 'POST /payments' .. string.rep('\t', 13) .. '\n')
  if ends > 0 then
    redis.call('ZADD', KEYS[1], lease_end, operation, string.format('-%d', ends + i + 86400000), '~' .. operation)
  end
end`

// busyRedis is a Redis with very many tokens, most of them not in doubt.
type busyRedis struct {
	t      testing.TB
	server *redistest.Server
	tokens *Tokens
}

func startBusyRedis(t testing.TB) *busyRedis {
	t.Helper()
	server := redistest.Start(t)
	return &busyRedis{t, server, newTokens(t, storetest.Open(t, redisstore.Config{URL: server.URL(), Timeout: time.Minute}))}
}

// fill writes records; ends is when the first one's lease ends, 0 for records that are not listed.
func (b *busyRedis) fill(n int, state State, name string, ends int64) {
	b.t.Helper()
	key := strings.Repeat(name, 32)
	keys := b.tokens.keysOf(key)
	prefix := strings.TrimSuffix(keys[0], "{"+key+"}")
	if prefix == keys[0] {
		b.t.Fatalf("the key of a token's record is %q, want it to end with the operation in braces", keys[0])
	}
	const some = 1000 // a script that writes all takes longer on a busy machine than a command may
	for from := 1; from <= n; from += some {
		err := b.server.Client().Eval(b.t.Context(), seed, keys[1:], prefix, from, min(from+some-1, n), string(state), name, ends).Err()
		if err != nil && !errors.Is(err, redis.Nil) {
			b.t.Fatalf("writing %d records that are %s: %v", n, state, err)
		}
	}
}

var called = regexp.MustCompile(`cmdstat_(\S+):calls=(\d+)`)

// setUp are the commands of new connections, and of the count itself.
var setUp = regexp.MustCompile(`^(hello|client|auth|select|ping|script|config|info|command)(\||$)`)

// commands returns how often each command was called while something was done, also by scripts.
func (b *busyRedis) commands(do func()) map[string]int {
	b.t.Helper()
	count := func() map[string]int {
		text, err := b.server.Client().Info(b.t.Context(), "commandstats").Result()
		if err != nil {
			b.t.Fatalf("INFO commandstats: %v", err)
		}
		counts := map[string]int{}
		for _, found := range called.FindAllStringSubmatch(text, -1) {
			counts[found[1]], _ = strconv.Atoi(found[2]) // digits
		}
		return counts
	}
	before := count()
	do()
	during := map[string]int{}
	for command, n := range count() {
		if n -= before[command]; n > 0 && !setUp.MatchString(command) {
			during[command] = n
		}
	}
	return during
}

// page reads one page.
func (b *busyRedis) page(asked doubtPage) (list []Operation, next string) {
	b.t.Helper()
	list, next, err := b.tokens.inDoubt(b.t.Context(), asked)
	if err != nil {
		b.t.Fatalf("InDoubt with %+v: %v", asked, err)
	}
	return list, next
}

const longAgo = 1_700_000_000_000 // milliseconds since 1970: a lease that ended then has lapsed

func TestPageOfOperationsInDoubtCostsTheSameAmongVeryManyTokens(t *testing.T) {
	b := startBusyRedis(t)
	ask := func(asked doubtPage, want int) (next string, cost map[string]int) {
		t.Helper()
		var list []Operation
		cost = b.commands(func() { list, next = b.page(asked) })
		expect.Equal(t, fmt.Sprintf("operations on the page %+v", asked), len(list), want)
		return next, cost
	}
	b.fill(150, StateClaimed, "d", longAgo)
	ask(doubtPage{Max: 100}, 100) // connects, and loads the scripts
	_, alone := ask(doubtPage{Max: 100}, 100)
	expect.Equal(t, "scripts of a page of 100", alone["evalsha"], 101)
	expect.Equal(t, "looks at the list for a page of 100", alone["zrangebyscore"], 1)

	b.fill(60_000, StateCompleted, "c", 0)
	b.fill(30_000, StateClaimed, "r", 4_000_000_000_000) // still running
	b.fill(20_000, StateClaimed, "e", longAgo+1000)
	next, among := ask(doubtPage{Max: 100}, 100)
	expect.Equal(t, "commands of the first page among 110,000 tokens", among, alone)
	_, second := ask(doubtPage{Max: 100, Cursor: next}, 100)
	second["zrangebyscore"] = alone["zrangebyscore"] // a second look past the cursor itself
	expect.Equal(t, "commands of the second page", second, alone)
	far := entry{longAgo + 1000 + 19_950, "e" + fmt.Sprintf("%031d", 19_950)}
	_, last := ask(doubtPage{Max: 100, Cursor: far.cursor()}, 50)
	expect.Equal(t, "scripts of the last page, of 50", last["evalsha"], 51)
}

func TestPageOfOperationsInDoubtIsBounded(t *testing.T) {
	b := startBusyRedis(t)
	b.fill(5_000, StateClaimed, "d", longAgo)
	b.page(doubtPage{Max: 1})
	for _, size := range []int{1, 100, 1000} {
		asked := doubtPage{Prefix: "POST /orders", Max: size}
		var list []Operation
		var next string
		cost := b.commands(func() { list, next = b.page(asked) })
		expect.Equal(t, fmt.Sprintf("operations on the page %+v", asked), len(list), 0)
		expect.Equal(t, fmt.Sprintf("more may follow the page %+v", asked), next != "", true)
		if shown := cost["getrange"]; shown > maxScanned {
			t.Errorf("InDoubt with %+v read %d operations, want %d at most: %s", asked, shown, maxScanned, cmp.Diff(nil, cost))
		}
		if listed := cost["evalsha"] - cost["getrange"]; listed > 2 {
			t.Errorf("InDoubt with %+v looked at the list %d times, want twice at most: in a cluster each asks every slot", asked, listed)
		}
	}
	pages := 0
	for cursor := ""; ; pages++ {
		_, next := b.page(doubtPage{Prefix: "POST /orders", Cursor: cursor, Max: 1})
		if cursor = next; cursor == "" {
			break
		}
	}
	expect.Equal(t, "pages without an operation of that prefix, of 5,000 in doubt", pages, 5)
}

// A claim takes at most 40 operations off the list whose records have ended, however many there
// are, and most claims take none.
func TestClaimCostsTheSameAmongVeryManyEndedOperations(t *testing.T) {
	b := startBusyRedis(t)
	claims := 0
	cost := func() map[string]int {
		return b.commands(func() {
			claims++
			claim(t, b.tokens, Key{Principal: "p", Scope: "r", ID: strconv.Itoa(claims)}, ClaimOptions{Fingerprint: "f"})
		})
	}
	cost() // loads the script
	b.fill(50_000, StateClaimed, "d", longAgo)
	usual, cleaning := map[string]int(nil), false
	expect.Eventually(t, "a claim takes operations off the list, and another one takes none", func() bool {
		among := cost()
		if removed := among["zrem"]; removed > 0 {
			expect.Equal(t, "ZREM of a claim beside 50,000 that have ended", removed, 40)
			cleaning = true
			return usual != nil
		}
		if usual != nil {
			expect.Equal(t, "commands of a claim that takes none", among, usual)
		}
		usual = among
		return cleaning
	})
	expect.Equal(t, "commands of a claim beside 50,000 that have ended", usual["zadd"]+usual["set"]+usual["getrange"], 3)
}
