package embedded

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

const oom = "OOM embedded store holds its cap of 10 keys; use a real Redis (--redis) or wait for keys to expire"

func TestAtTheCapNothingNewIsMadeAndTheRestGoesOn(t *testing.T) {
	bubble(t, Config{MaxKeys: 10}, func(t *testing.T, s *Store, c *redis.Client) {
		set := `redis.call('SET', KEYS[1], 'v') redis.call('HINCRBY', 'made', 'n', 1) return 'done'`
		do(t, c, "SET", "brief", "v", "PX", 1000)
		for i := range 9 {
			do(t, c, "SET", fmt.Sprint("k", i), 0)
		}
		refused(t, c, oom, "EVAL", set, 1, "new")
		refused(t, c, oom, "SET", "new", "v")
		refused(t, c, oom, "MSET", "k0", "1", "new", "v")
		refused(t, c, oom, "HSET", "new", "f", "v")
		sha := do(t, c, "SCRIPT", "LOAD", set)
		refused(t, c, oom, "EVALSHA", sha, 1, "new")
		want(t, c, "0", "GET", "k0")
		want(t, c, "10", "DBSIZE")

		want(t, c, "1", "INCR", "k0")
		want(t, c, "1", "DEL", "k1")
		want(t, c, "OK", "SET", "k1", "v")
		want(t, c, "done", "EVALSHA", sha, 1, "k1") // its second key is the slack
		want(t, c, "11", "DBSIZE")
		want(t, c, "1", "DEL", "made")

		time.Sleep(time.Second)
		want(t, c, "OK", "SET", "new", "v")
		refused(t, c, oom, "SET", "another", "v")
	})
}

func TestScriptsOnExistingRecordsStopAtTheSlack(t *testing.T) {
	s := open(t, Config{MaxKeys: 10})
	c := client(t, s)
	for i := range 10 {
		do(t, c, "SET", fmt.Sprint("k", i), 0)
	}
	second := `return redis.call('SET', KEYS[2], 'v')`
	for i := range s.slack() {
		do(t, c, "EVAL", second, 2, "k0", fmt.Sprint("second", i))
	}
	refused(t, c, oom, "EVAL", second, 2, "k0", "another")
	do(t, c, "EVAL", second, 2, "k0", "second0")
	want(t, c, fmt.Sprint(10+s.slack()), "DBSIZE")
}

func TestAScriptWhoseKeysCannotBeCountedIsLeftToMiniredis(t *testing.T) {
	c := client(t, open(t, Config{MaxKeys: 1}))
	do(t, c, "SET", "k", "v")
	refused(t, c, "ERR value is not an integer", "EVAL", "return 1", "many")
	refused(t, c, "ERR Number of keys can't be greater", "EVAL", "return 1", 3, "k")
	refused(t, c, "ERR wrong number of arguments", "EVAL", "return 1")
}
