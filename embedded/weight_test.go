package embedded

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

const oomBytes = "OOM embedded store holds its cap of"

// fills are ways to fill a store, each a command for the n-th time. {n} is a number, {value} a
// value.
var fills = map[string]struct {
	value   int // bytes
	command []any
}{
	"large answers":      {300_000, []any{"SET", "token:{n}", "completed\to{n}\t1\t\n{value}", "PX", "3600000"}},
	"answers":            {200, []any{"SET", "token:{n}", "completed\to{n}\tf{n}\t1\t1\t30000\t\n{value}", "PX", "3600000"}},
	"tokens":             {0, []any{"SET", "token:{n}", "issued\t\t\n", "PX", "3600000"}},
	"expiring strings":   {20, []any{"SET", "request:{n}", "{value}", "PX", "3600000"}},
	"counters":           {10, []any{"SET", "counter:{n}", "{value}"}},
	"names of one list":  {0, []any{"ZADD", "names", "0", "a-name-of-something-{n}"}},
	"fields of one hash": {20, []any{"HSET", "pool", "field-{n}", "{value}"}},
}

// Whatever fills a store, its heap stays below the bound, uses a good part of it, and what is
// refused then has changed nothing.
func TestHeapOfAFullStoreStaysBelowItsBound(t *testing.T) {
	const most = 2 << 20
	for name, fill := range fills {
		t.Run(name, func(t *testing.T) {
			heap := int64(0)
			for range 5 { // what tests before have left may go in the middle
				before := heapInUse()
				s := open(t, Config{MaxBytes: most})
				n := fillUp(t, client(t, s), fill.value, fill.command)
				heap = heapInUse() - before
				t.Logf("%d times: %d bytes of heap, %d counted", n, heap, s.weights.total)
				runtime.KeepAlive(s)
				if heap <= most*11/10 && heap >= most/5 {
					return
				}
			}
			t.Errorf("heap of a store with a bound of %d: got %d, want less, and a good part of it", most, heap)
		})
	}
}

// fillUp runs a command until it is refused, and returns how often it was not. It sends many at a
// time, since an exchange for each would cost more than the commands, and on a connection that is
// closed then, since its buffers are no part of the store.
func fillUp(t *testing.T, c *redis.Client, value int, command []any) (n int) {
	t.Helper()
	const atOnce = 50
	filling := redis.NewClient(c.Options())
	defer filling.Close()
	for n < 1_000_000 {
		replies, _ := filling.Pipelined(t.Context(), func(pipe redis.Pipeliner) error {
			for i := range atOnce {
				pipe.Do(t.Context(), filled(command, n+i, value)...)
			}
			return nil
		})
		for _, reply := range replies {
			if reply.Err() == nil {
				n++
				continue
			}
			before := c.DBSize(t.Context()).Val()
			refused(t, c, oomBytes, filled(command, n, value)...)
			want(t, c, fmt.Sprint(before), "DBSIZE")
			return n
		}
	}
	t.Fatal("the store is never full")
	return 0
}

// filled is a command of fills for the n-th time.
func filled(command []any, n, value int) []any {
	words := make([]any, len(command))
	for i, word := range command {
		text := strings.ReplaceAll(word.(string), "{n}", fmt.Sprint(n))
		if text == "{value}" {
			text = strings.Repeat("v", value)
		}
		words[i] = text
	}
	return words
}

// heapInUse waits until what tests before have left is gone.
func heapInUse() (heap int64) {
	var now runtime.MemStats
	for last := int64(-1); heap != last; {
		last = heap
		for range 3 { // what pools hold goes with the second
			runtime.GC()
		}
		runtime.ReadMemStats(&now)
		heap = int64(now.HeapAlloc) >> 17 << 17
	}
	return heap
}

// A full store goes on with the records that it has, and has room again for others when some are
// gone.
func TestFullStoreGoesOnWithItsRecords(t *testing.T) {
	bubble(t, Config{MaxBytes: 1 << 20}, func(t *testing.T, _ *Store, c *redis.Client) {
		const add = `redis.call('HSET', KEYS[1], 'f', ARGV[1]) return 'done'`
		do(t, c, "SET", "brief", strings.Repeat("v", 500_000), "PX", 1000)
		do(t, c, "HSET", "record", "f", "v")
		fillUp(t, c, 1000, []any{"SET", "k{n}", "{value}"})
		refused(t, c, oomBytes, "EVAL", add, 1, "new", strings.Repeat("v", 1000))
		refused(t, c, oomBytes, "MSET", "record2", "v", "new", strings.Repeat("v", 1000))
		// an answer to what has begun
		want(t, c, "done", "EVAL", add, 1, "record", strings.Repeat("w", 10_000))
		want(t, c, "w", "EVAL", `return string.sub(redis.call('HGET', KEYS[1], 'f'), 1, 1)`, 1, "record")
		refused(t, c, oomBytes, "EVAL", add, 1, "record", strings.Repeat("w", 200_000))
		want(t, c, "1", "DEL", "k0")
		time.Sleep(time.Second)
		want(t, c, "done", "EVAL", add, 1, "new", strings.Repeat("v", 100_000))
	})
}

// What is counted is never less than what is there, and not much more, after whatever was done.
func TestWeightsFollowWhatIsDone(t *testing.T) {
	s := open(t, Config{})
	c := client(t, s)
	random := rand.New(rand.NewPCG(1, 2))
	text := func() string { return strings.Repeat("x", random.IntN(300)) }
	commands := []func(key string) []any{
		func(key string) []any { return []any{"SET", "string" + key, text()} },
		func(key string) []any { return []any{"APPEND", "string" + key, text()} },
		func(key string) []any { return []any{"HSET", "hash" + key, text(), text(), "f", text()} },
		func(key string) []any { return []any{"HDEL", "hash" + key, "f"} },
		func(key string) []any { return []any{"ZADD", "zset" + key, "1", text()} },
		func(key string) []any { return []any{"ZREMRANGEBYRANK", "zset" + key, "0", "1"} },
		func(key string) []any { return []any{"RPUSH", "list" + key, text()} },
		func(key string) []any { return []any{"LPOP", "list" + key} },
		func(key string) []any { return []any{"SADD", "set" + key, text()} },
		func(key string) []any { return []any{"DEL", "hash" + key, "zset" + key, "string" + key} },
		func(key string) []any {
			return []any{"EVAL", `redis.call('SET', KEYS[1], ARGV[1]) return redis.call('DEL', KEYS[2])`, "2", "string" + key, "list" + key, text()}
		},
	}
	for range 20_000 {
		// some find nothing
		_ = c.Do(t.Context(), commands[random.IntN(len(commands))](fmt.Sprint(random.IntN(20)))...).Err()
	}
	s.exec.Lock()
	defer s.exec.Unlock()
	exact, counted := int64(0), int64(0)
	for _, key := range s.redis.Keys() {
		exact += s.sizeLocked(key)
	}
	for _, known := range s.weights.of {
		counted += known.measured + known.written
	}
	if len(s.weights.of) != len(s.redis.Keys()) || s.weights.total != counted {
		t.Errorf("weights of %d keys: got %d of %d keys, of which the sum is %d", len(s.redis.Keys()), s.weights.total, len(s.weights.of), counted)
	}
	if counted < exact*3/4 || counted > exact*7/4+int64(small*len(s.weights.of)) {
		t.Errorf("counted %d bytes, want about the %d that are there", counted, exact)
	}
}

func TestAScriptWhoseKeysCannotBeCountedIsLeftToMiniredis(t *testing.T) {
	c := client(t, open(t, Config{}))
	do(t, c, "SET", "k", "v")
	refused(t, c, "ERR value is not an integer", "EVAL", "return 1", "many")
	refused(t, c, "ERR Number of keys can't be greater", "EVAL", "return 1", 3, "k")
	refused(t, c, "ERR wrong number of arguments", "EVAL", "return 1")
}
