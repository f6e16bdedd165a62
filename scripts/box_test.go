package scripts_test

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/recordtest"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/scripts"
)

// all are the operations of the package.
var all = []*scripts.Script{
	scripts.Incarnation, scripts.StoreRestored, scripts.StorePlaces, scripts.StoreLeave,
	scripts.TokenIssue, scripts.TokenClaim, scripts.TokenAnswer, scripts.TokenComplete, scripts.TokenExtend, scripts.TokenRelease,
	scripts.OperationList, scripts.OperationCount, scripts.OperationGet, scripts.OperationSettle, scripts.OperationForget, scripts.OperationResolve,
	scripts.CounterOpen, scripts.CounterEra, scripts.CounterIncr, scripts.CounterSet, scripts.CounterRetire, scripts.CounterGet,
	scripts.LockEnter, scripts.LockRenew, scripts.LockLeave, scripts.LockBreak, scripts.LockGet, scripts.LockNote, scripts.LockNames,
	scripts.NameAdd, scripts.NameRemove, scripts.NameList,
	scripts.WorkerCreate, scripts.WorkerAcquire, scripts.WorkerRenew, scripts.WorkerRelease, scripts.WorkerGet,
	scripts.KeyAdd, scripts.KeyRemove, scripts.KeyList, scripts.LimitTake,
	scripts.LedgerAppend, scripts.LedgerList,
}

var kinds = []string{"embedded", "redis"}

// patience is how long a command may wait for what must come; only a hang takes that long.
const patience = 2 * time.Minute

// box is one Redis that a test has for itself. It gets to know a script when a test first runs it.
type box struct {
	testing.TB
	kind   string
	client *redis.Client
	facts  string // the caller's, for lib/incarnation; "" = of one that knows nothing
}

// each runs the test on the embedded store and on a redis-server.
func each(t *testing.T, test func(t *testing.T, b *box)) {
	t.Helper()
	t.Parallel()
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			test(t, open(t, kind))
		})
	}
}

func open(t testing.TB, kind string) *box {
	t.Helper()
	return &box{TB: t, kind: kind, client: stores.take(t, kind)}
}

// serve is a redis-server as a box.
func serve(t testing.TB, server *redistest.Server) *box {
	t.Helper()
	options := clientOptions()
	options.Addr = server.Addr()
	b := &box{TB: t, kind: "redis", client: redis.NewClient(options)}
	t.Cleanup(func() { _ = b.client.Close() })
	return b
}

// load makes a script known to the server.
func (b *box) load(script *scripts.Script) {
	b.Helper()
	expect.MustEqual(b, "the hash of "+script.Name, b.do("SCRIPT", "LOAD", script.Text().Source), any(script.Text().SHA))
}

// on is the same Redis for a subtest.
func (b *box) on(t *testing.T) *box { return &box{t, b.kind, b.client, b.facts} }

// do runs a command that must succeed.
func (b *box) do(words ...any) any {
	b.Helper()
	answer, err := b.client.Do(b.Context(), words...).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		b.Fatalf("command %v: got error %v, want none", words, err)
	}
	return answer
}

// factsNow are the facts with the server's incarnation.
func (b *box) factsNow() string {
	b.Helper()
	facts := cmp.Or(b.facts, some)
	if !strings.Contains(facts, "ID") {
		return facts
	}
	return strings.Replace(facts, "ID", b.replid(), 1)
}

// try runs a script as EVALSHA.
func (b *box) try(script *scripts.Script, keys []string, args ...any) ([]string, error) {
	b.Helper()
	if script.Text().Incarnation {
		own := len(args)
		if script.Name == scripts.LockEnter.Name {
			own = min(own, 10) // then comes the reply of a library's script
		}
		args = slices.Insert(slices.Clone(args), own, any(b.factsNow()))
	}
	lastCall.Store(b.Name(), call{script.Name, keys, args})
	answer, err := b.client.EvalSha(b.Context(), script.Text().SHA, keys, args...).Result()
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		b.load(script)
		answer, err = b.client.EvalSha(b.Context(), script.Text().SHA, keys, args...).Result()
	}
	if err != nil {
		return nil, err
	}
	items, ok := answer.([]any)
	if !ok || len(items) == 0 {
		b.Fatalf("%s answered %#v instead of a list", script.Name, answer)
	}
	reply := make([]string, len(items))
	for i, item := range items {
		if reply[i], ok = item.(string); !ok {
			b.Fatalf("%s: value %d of its reply is a %T: %#v", script.Name, i, item, items)
		}
	}
	seen.note(b.kind, script.Name, reply[0])
	return reply, nil
}

// run runs a script that must answer.
func (b *box) run(script *scripts.Script, keys []string, args ...any) []string {
	b.Helper()
	reply, err := b.try(script, keys, args...)
	if err != nil {
		b.Fatalf("%s %v %v: got error %v, want an answer", script.Name, keys, args, err)
	}
	return reply
}

// now is the server's time in milliseconds.
func (b *box) now() int64 {
	b.Helper()
	parts := b.do("TIME").([]any)
	return number(b, parts[0].(string))*1000 + number(b, parts[1].(string))/1000
}

// tick waits until the server's clock shows another millisecond.
func (b *box) tick() {
	b.Helper()
	for start := b.now(); b.now() == start; {
		time.Sleep(200 * time.Microsecond)
	}
}

// expiry is when a key ends, in milliseconds since 1970 of the server, rounded; -1 = never, -2 =
// there is no such key.
func (b *box) expiry(key string) int64 {
	b.Helper()
	const text = `local left = redis.call('PTTL', KEYS[1])
if left < 0 then return left end
local time = redis.call('TIME')
return time[1] * 1000 + math.floor(time[2] / 1000) + left`
	return b.do("EVAL", text, 1, key).(int64)
}

// record is all that one key holds.
type record struct {
	kind, content string
	expiry        int64
}

// look reads keys as a whole.
func (b *box) look(keys ...string) map[string]record {
	b.Helper()
	found := map[string]record{}
	for _, key := range keys {
		kind := b.do("TYPE", key).(string)
		found[key] = record{kind, b.content(kind, key), b.expiry(key)}
	}
	return found
}

func (b *box) content(kind, key string) string {
	b.Helper()
	switch kind {
	case "none":
		return ""
	case "string":
		return fmt.Sprint(b.do("GET", key))
	case "list":
		return fmt.Sprint(b.do("LRANGE", key, 0, -1))
	case "zset":
		return fmt.Sprint(b.do("ZRANGE", key, 0, -1, "WITHSCORES"))
	case "hash":
		fields := b.fields(key)
		var lines []string
		for _, field := range slices.Sorted(maps.Keys(fields)) {
			lines = append(lines, field+"="+fields[field])
		}
		return strings.Join(lines, "\n")
	}
	b.Fatalf("%s is a %s", key, kind)
	return ""
}

func (b *box) fields(key string) map[string]string {
	b.Helper()
	fields, err := b.client.HGetAll(b.Context(), key).Result()
	if err != nil {
		b.Fatalf("HGETALL %s: %v", key, err)
	}
	return fields
}

// setWord changes a word of the operation's record.
func (b *box) setWord(name, word string) {
	b.Helper()
	b.do("SET", tokenKey[0], recordtest.With(b.do("GET", tokenKey[0]).(string), name, word), "KEEPTTL")
}

// same fails the test if the keys are no longer as they were. An expiry may differ by what rounding
// makes of it.
func (b *box) same(before map[string]record) {
	b.Helper()
	after := b.look(slices.Collect(maps.Keys(before))...)
	for key, was := range before {
		is := after[key]
		drift := is.expiry - was.expiry
		if is.kind != was.kind || is.content != was.content || drift < -slack || drift > slack || (is.expiry < 0) != (was.expiry < 0) {
			b.Errorf("%s: %s changed\nfrom %+v\nto   %+v", lastAsked(b), key, was, is)
		}
	}
}

// slack is by how much, in milliseconds, two readings of one expiry may differ, and what a busy
// machine may take between a command and the next reading of the clock. What must not change an
// expiry would change it by more.
const slack = 25_000

// lastCall is the last run of a script in each test, by the test's name.
var lastCall sync.Map

type call struct {
	script string
	keys   []string
	args   []any
}

// lastAsked is what a test asked of a script last, for its failures.
func lastAsked(t testing.TB) string {
	last, is := lastCall.Load(t.Name())
	if !is {
		return "before any script ran"
	}
	c := last.(call)
	var words []string
	for _, arg := range c.args {
		words = append(words, strconv.Quote(fmt.Sprint(arg)))
	}
	return fmt.Sprintf("last asked: %s %s | %s", c.script, strings.Join(c.keys, " "), strings.Join(words, " "))
}

// want fails the test unless a reply is exactly as wanted.
func want(t testing.TB, reply []string, words ...string) {
	t.Helper()
	if !slices.Equal(reply, words) {
		t.Fatalf("%s: got %q, want %q", lastAsked(t), reply, words)
	}
}

// word fails the test unless a reply has the outcome, with that many values after it.
func word(t testing.TB, reply []string, outcome string, values int) {
	t.Helper()
	if reply[0] != outcome || len(reply) != values+1 {
		t.Fatalf("%s: got %q, want %s with %d values", lastAsked(t), reply, outcome, values)
	}
}

func number(t testing.TB, text string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: got a value that is no number: %v", lastAsked(t), err)
	}
	return n
}

// between fails the test unless low <= n <= high.
func between(t testing.TB, what string, n, low, high int64) {
	t.Helper()
	if n < low || n > high {
		t.Fatalf("%s: %s is %d, want %d to %d", lastAsked(t), what, n, low, high)
	}
}
