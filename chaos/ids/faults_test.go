package ids

import (
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/redisstore"
)

// fault is a kind of thing that breaks, and is made whole again.
type fault struct {
	name   string
	strike func(*field)
}

var kinds = []fault{
	{"process stopped for longer than its lease", func(f *field) { f.stopped(f.any()) }},
	{"half of the processes stopped for longer than their leases", func(f *field) { f.stopped(f.processes[:len(f.processes)/2]...) }},
	{"process killed", func(f *field) {
		p := f.any()
		p.kill()
		f.replace(p)
	}},
	{"process ends in order", func(f *field) {
		p := f.any()
		p.finish()
		f.replace(p)
	}},
	{"all processes replaced, one after the other, twice", func(f *field) {
		for range 2 {
			for _, p := range append([]*process(nil), f.processes...) {
				p.finish()
				f.replace(p)
			}
		}
	}},
	{"everything in Redis lost", func(f *field) { f.redisDoes("FLUSHALL") }},
	{"everything in Redis lost, and a process stopped", func(f *field) {
		p := f.any()
		p.signal(syscall.SIGSTOP)
		f.redisDoes("FLUSHALL")
		time.Sleep(ttl + ttl/2)
		p.signal(syscall.SIGCONT)
	}},
	{"one record lost", func(f *field) { f.redisDoes("HDEL", poolKey, "s:"+string(rune('0'+f.lot.IntN(8)))) }},
	{"index and names lost", func(f *field) { f.redisDoes("DEL", poolKey+":ends", poolKey+":names") }},
	{"master killed", func(f *field) {
		master := f.redis.Master()
		master.Kill()
		f.redis.WaitForMaster(master)
		master.Restart()
	}},
	{"master back empty", func(f *field) { f.redis.Master().RestartEmpty() }},
	{"master stopped, replaced, and going on", func(f *field) {
		master := f.redis.Master()
		master.Pause()
		f.redis.WaitForMaster(master)
		master.Resume()
	}},
	{"master killed, and a process stopped", func(f *field) {
		p := f.any()
		p.signal(syscall.SIGSTOP)
		master := f.redis.Master()
		master.Kill()
		f.redis.WaitForMaster(master)
		master.Restart()
		time.Sleep(ttl)
		p.signal(syscall.SIGCONT)
	}},
}

const poolKey = redisstore.DefaultPrefix + "worker:{" + pool + "}"

// stopped freezes processes until their leases have ended for certain; then they go on with what they were about to do.
func (f *field) stopped(processes ...*process) {
	for _, p := range processes {
		p.signal(syscall.SIGSTOP)
	}
	time.Sleep(ttl + ttl/2 + rand.N(ttl/2))
	for _, p := range processes {
		p.signal(syscall.SIGCONT)
	}
}

func (f *field) redisDoes(words ...any) {
	f.t.Helper()
	if err := f.redis.Master().Client().Do(f.t.Context(), words...).Err(); err != nil {
		f.t.Errorf("%v: %v", words, err)
	}
}

func openStore(t testing.TB, url string) *redisstore.Store {
	t.Helper()
	store, err := redisstore.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	return store
}
