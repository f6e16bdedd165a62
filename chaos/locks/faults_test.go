package locks

import (
	"math/rand/v2"
	"syscall"
	"time"
)

// fault is a kind of thing that breaks, and is made whole again.
type fault struct {
	name      string
	failovers int // that it makes, or whatever
	strike    func(*field)
}

const whatever = -1

// kinds are the faults that one replica of two which confirms is enough for.
var kinds = []fault{
	{"holder killed", 0, func(f *field) {
		p := f.holder()
		p.kill()
		f.replace(p)
	}},
	{"holder stopped for longer than its lease", 0, func(f *field) { f.stopped(f.holder()) }},
	{"half of the processes stopped for longer than their leases", 0, func(f *field) { f.stopped(f.processes[:len(f.processes)/2]...) }},
	{"half of the processes killed", 0, func(f *field) {
		half := append([]*process(nil), f.processes[:len(f.processes)/2]...)
		for _, p := range half {
			p.kill()
		}
		for _, p := range half {
			f.replace(p)
		}
	}},
	{"master killed", 1, func(f *field) {
		master := f.redis.Master()
		master.Kill()
		f.redis.WaitForMaster(master)
		master.Restart()
	}},
	{"master killed, and a holder stopped", 1, func(f *field) {
		p := f.holder()
		p.signal(syscall.SIGSTOP)
		master := f.redis.Master()
		master.Kill()
		f.redis.WaitForMaster(master)
		master.Restart()
		p.signal(syscall.SIGCONT)
	}},
	{"master stopped, replaced, and going on", 1, func(f *field) {
		master := f.redis.Master()
		master.Pause()
		f.redis.WaitForMaster(master)
		master.Resume()
	}},
	{"links swallow what is sent for longer than a lease", 0, func(f *field) {
		cut, mend, end := f.beside(2)
		cut()
		time.Sleep(ttl + rand.N(ttl/2))
		mend()
		f.wait()
		end()
	}},
}

// live are the faults in which a master is replaced, or may be, while it serves: both replicas have to confirm.
var live = []fault{
	{"Redis pauses writes for longer than a lease, and runs them later", whatever, func(f *field) {
		span := ttl + rand.N(ttl/2)
		f.redisDoes("CLIENT", "PAUSE", span.Milliseconds(), "WRITE") // the sentinels' writes too, and so they may replace it
		time.Sleep(span)
	}},
	{"failover by hand", 1, func(f *field) {
		master := f.redis.Master()
		sentinel := f.sentinel()
		defer sentinel.Close()
		await(f.t, time.Minute, func() string {
			if err := sentinel.Failover(f.t.Context(), masterName).Err(); err != nil {
				return err.Error() // no replica is fit yet, or another failover has just been
			}
			return ""
		})
		f.redis.WaitForMaster(master)
	}},
	{"master stopped, replaced, and going on, and a holder stopped", whatever, func(f *field) {
		p := f.holder()
		p.signal(syscall.SIGSTOP)
		master := f.redis.Master()
		master.Pause()
		f.redis.WaitForMaster(master)
		master.Resume()
		p.signal(syscall.SIGCONT)
	}},
}

// stopped freezes processes until their leases have ended for certain; then they go on with what they were about to do.
func (f *field) stopped(processes ...*process) {
	for _, p := range processes {
		p.signal(syscall.SIGSTOP)
	}
	time.Sleep(ttl + rand.N(ttl/2))
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
