//go:build check

package locks

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/coatcheck/coatcheck/chaos/internal/chaostest"
)

type fault = chaostest.Fault[*field]

// kinds are the faults that one replica of two which confirms is enough for. A failover by hand is
// none, see TestLiveMasterThatIsReplacedNeedsEveryReplicaToConfirm.
var kinds = []fault{
	{Name: "holder killed", Strike: func(f *field) { f.Kill(f.holder()) }},
	{Name: "holder stopped for longer than its lease", Strike: func(f *field) { f.stopped(f.holder()) }},
	{Name: "half of the processes stopped for longer than their leases", Strike: func(f *field) { f.stopped(f.Processes[:len(f.Processes)/2]...) }},
	{Name: "half of the processes killed", Strike: func(f *field) { f.Kill(slices.Clone(f.Processes[:len(f.Processes)/2])...) }},
	{Name: "master killed", Failovers: 1, Strike: func(f *field) { chaostest.KillMaster(f.Redis)() }},
	{Name: "master killed, and a holder stopped", Failovers: 1, Strike: func(f *field) { f.While(func() { chaostest.KillMaster(f.Redis)() }, f.holder()) }},
	{Name: "master stopped, replaced, and going on", Failovers: 1, Strike: func(f *field) { chaostest.PauseMaster(f.Redis)() }},
	{Name: "links swallow what is sent for longer than a lease", Strike: func(f *field) {
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
	{Name: "Redis pauses writes for longer than a lease, and runs them later", Failovers: chaostest.AnyFailovers, Strike: func(f *field) {
		span := ttl + rand.N(ttl/2)
		// the sentinels' writes too, and so they may replace it
		f.RedisDoes("CLIENT", "PAUSE", span.Milliseconds(), "WRITE")
		time.Sleep(span)
	}},
	{Name: "failover by hand", Failovers: 1, Strike: func(f *field) {
		before := f.watch.Switched()
		// who is master then is no matter: a failover that was asked for twice may bring the old
		// one back
		chaostest.Await(f.T, 2*time.Minute, func() string {
			if f.watch.Switched() > before {
				return ""
			}
			// no replica is fit yet, another failover has just been, or is under way
			return fmt.Sprint("asked once more: ", f.watch.Failover(f.T.Context()))
		})
	}},
	{Name: "master stopped, replaced, and going on, and a holder stopped", Failovers: chaostest.AnyFailovers, Strike: func(f *field) {
		f.While(func() { chaostest.PauseMaster(f.Redis)() }, f.holder())
	}},
}

// losses are those in which Redis loses all: holders have to be waited for.
var losses = []fault{
	{Name: "everything in Redis lost", Failovers: chaostest.AnyFailovers, Strike: func(f *field) { f.RedisDoes("FLUSHALL") }},
	{Name: "master back empty", Failovers: chaostest.AnyFailovers, Strike: func(f *field) { f.Redis.Master().RestartEmpty() }},
}

// sparing are the faults that leave the master alone. Then no replica has to confirm, and who is
// handed a lock begins with the message.
var sparing = slices.DeleteFunc(slices.Clone(kinds), func(kind fault) bool { return kind.Failovers != 0 })

// stopped freezes processes until their leases have ended for certain.
func (f *field) stopped(processes ...*chaostest.Member) { f.Freeze(ttl+rand.N(ttl/2), processes...) }
