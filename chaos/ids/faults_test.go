//go:build check

package ids

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/chaos/internal/chaostest"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/redisstore"
)

// fault is a kind of thing that breaks, and is made whole again.
type fault struct {
	name   string
	strike func(*field)
}

var kinds = []fault{
	{"process stopped for longer than its lease", func(f *field) { f.stopped(f.any()) }},
	{"half of the processes stopped for longer than their leases", func(f *field) { f.stopped(f.Processes[:len(f.Processes)/2]...) }},
	{"process killed", func(f *field) {
		p := f.any()
		p.Kill()
		f.Replace(p)
	}},
	{"process ends in order", func(f *field) {
		p := f.any()
		p.Finish()
		f.Replace(p)
	}},
	{"all processes replaced, one after the other, twice", func(f *field) {
		for range 2 {
			for _, p := range slices.Clone(f.Processes) {
				p.Finish()
				f.Replace(p)
			}
		}
	}},
	{"everything in Redis lost", func(f *field) { f.RedisDoes("FLUSHALL") }},
	{"everything in Redis lost, and a process stopped", func(f *field) {
		p := f.any()
		p.Stop()
		f.RedisDoes("FLUSHALL")
		time.Sleep(ttl + ttl/2)
		p.Resume()
	}},
	{"one record lost", func(f *field) {
		which := f.Lot.Int64N(8)
		if f.role == "masked" {
			f.RedisDoes("DEL", key(which))
			return
		}
		f.RedisDoes("HDEL", poolKey, fmt.Sprint("s:", which))
	}},
	{"index and names lost", func(f *field) { f.RedisDoes("DEL", poolKey+":ends", poolKey+":names") }},
	{"master killed", func(f *field) { chaostest.KillMaster(f.Redis)() }},
	{"master back empty", func(f *field) { f.Redis.Master().RestartEmpty() }},
	{"master stopped, replaced, and going on", func(f *field) { chaostest.PauseMaster(f.Redis)() }},
	{"master replaced by hand", func(f *field) { chaostest.ReplaceMaster(f.T.Context(), f.T, f.Redis) }},
	{"master killed, and a process stopped", func(f *field) {
		p := f.any()
		p.Stop()
		chaostest.KillMaster(f.Redis)()
		time.Sleep(ttl)
		p.Resume()
	}},
}

const poolKey = "coatcheck:worker:{" + pool + "}"

// stopped freezes processes until their leases have ended for certain.
func (f *field) stopped(processes ...*process) { f.Freeze(ttl+ttl/2+rand.N(ttl/2), processes...) }

func openStore(t testing.TB, url string) *redisstore.Store {
	t.Helper()
	store, err := redisstore.Open(t.Context(), url)
	expect.NoError(t, "redisstore.Open", err)
	t.Cleanup(func() { _ = store.Close() })
	return store
}
