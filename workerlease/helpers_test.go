package workerlease_test

import (
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/onstore"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/scripts"
)

// patience is how long a test waits for what must come.
const patience = 2 * time.Minute

// raw runs a line of Lua on a store, whatever kind it is.
func raw(t testing.TB, store *redisstore.Store, source string, keys []string, args ...any) {
	t.Helper()
	if _, err := onstore.Run(t.Context(), store, scripts.New("raw", source), keys, args...); err != nil {
		t.Fatalf("running a script: got error %v, want none", err)
	}
}

// lose deletes keys.
func (p pools) lose(t testing.TB, keys ...string) {
	t.Helper()
	raw(t, p.store, "redis.call('DEL', unpack(KEYS)) return {'ok'}", keys)
}

// forget deletes all that there is of a pool.
func (p pools) forget(t testing.TB, pool string) {
	t.Helper()
	p.lose(t, onstore.Key(p.store, "worker", pool), onstore.Key(p.store, "worker", pool, "ends"), onstore.Key(p.store,
		"worker", pool, "names"))
}

// strike deletes the record of one worker id of the pool p.
func (p pools) strike(t testing.TB, workerID string) {
	t.Helper()
	raw(t, p.store, "redis.call('HDEL', KEYS[1], 's:' .. ARGV[1]) return {'ok'}", []string{onstore.Key(p.store, "worker", "p")}, workerID)
}
