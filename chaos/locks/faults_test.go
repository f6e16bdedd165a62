//go:build check

package locks

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/coatcheck/coatcheck/chaos/internal/chaostest"
)

// fault is a kind of thing that breaks, and is made whole again.
type fault struct {
	name      string
	failovers int // that it makes, or whatever
	strike    func(*field)
}

const whatever = -1

// kinds are the faults that one replica of two which confirms is enough for. A failover by hand is
// none, see TestLiveMasterThatIsReplacedNeedsEveryReplicaToConfirm.
var kinds = []fault{
	{"holder killed", 0, func(f *field) {
		p := f.holder()
		p.Kill()
		f.Replace(p)
	}},
	{"holder stopped for longer than its lease", 0, func(f *field) { f.stopped(f.holder()) }},
	{"half of the processes stopped for longer than their leases", 0, func(f *field) { f.stopped(f.Processes[:len(f.Processes)/2]...) }},
	{"half of the processes killed", 0, func(f *field) {
		half := slices.Clone(f.Processes[:len(f.Processes)/2])
		for _, p := range half {
			p.Kill()
		}
		for _, p := range half {
			f.Replace(p)
		}
	}},
	{"master killed", 1, func(f *field) { chaostest.KillMaster(f.Redis)() }},
	{"master killed, and a holder stopped", 1, func(f *field) {
		p := f.holder()
		p.Stop()
		chaostest.KillMaster(f.Redis)()
		p.Resume()
	}},
	{"master stopped, replaced, and going on", 1, func(f *field) { chaostest.PauseMaster(f.Redis)() }},
	{"links swallow what is sent for longer than a lease", 0, func(f *field) {
		cut, mend, end := f.beside(2)
		cut()
		time.Sleep(ttl + rand.N(ttl/2))
		mend()
		end()
	}},
}

// live are the faults in which a master is replaced, or may be, while it serves: both replicas have
// to confirm.
var live = []fault{
	{"Redis pauses writes for longer than a lease, and runs them later", whatever, func(f *field) {
		span := ttl + rand.N(ttl/2)
		// the sentinels' writes too, and so they may replace it
		f.RedisDoes("CLIENT", "PAUSE", span.Milliseconds(), "WRITE")
		time.Sleep(span)
	}},
	{"failover by hand", 1, func(f *field) {
		sentinel := f.sentinel()
		defer sentinel.Close()
		before := f.epoch()
		// who is master then is no matter: a failover that was asked for twice may bring the old
		// one back
		chaostest.Await(f.T, 2*time.Minute, func() string {
			if f.epoch() > before {
				return ""
			}
			// no replica is fit yet, another failover has just been, or is under way
			return fmt.Sprint("asked once more: ", sentinel.Failover(f.T.Context(), masterName).Err())
		})
	}},
	{"master stopped, replaced, and going on, and a holder stopped", whatever, func(f *field) {
		p := f.holder()
		p.Stop()
		chaostest.PauseMaster(f.Redis)()
		p.Resume()
	}},
}

// losses are those in which Redis loses all: holders have to be waited for.
var losses = []fault{
	{"everything in Redis lost", whatever, func(f *field) { f.RedisDoes("FLUSHALL") }},
	{"master back empty", whatever, func(f *field) { f.Redis.Master().RestartEmpty() }},
}

// sparing are the faults that leave the master alone. Then no replica has to confirm, and who is
// handed a lock begins with the message.
var sparing = slices.DeleteFunc(slices.Clone(kinds), func(kind fault) bool { return kind.failovers != 0 })

// stopped freezes processes until their leases have ended for certain.
func (f *field) stopped(processes ...*process) { f.Freeze(ttl+rand.N(ttl/2), processes...) }
