//go:build check

package ids

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/coatcheck/coatcheck/chaos/internal/chaostest"
)

const halfStopped = "half of the processes stopped for longer than their leases"

var kinds = []chaostest.Fault[*field]{
	{Name: "process stopped for longer than its lease", Strike: func(f *field) { f.stopped(f.Any()) }},
	{Name: halfStopped, Strike: func(f *field) { f.stopped(f.Processes[:len(f.Processes)/2]...) }},
	{Name: "process killed", Strike: func(f *field) { f.Kill(f.Any()) }},
	{Name: "process ends in order", Strike: func(f *field) { f.succeed(f.Any()) }},
	{Name: "all processes replaced, one after the other, twice", Strike: func(f *field) {
		for range 2 {
			for _, p := range slices.Clone(f.Processes) {
				f.succeed(p)
			}
		}
	}},
	{Name: "everything in Redis lost", Strike: func(f *field) { f.RedisDoes("FLUSHALL") }},
	{Name: "everything in Redis lost, and a process stopped", Strike: func(f *field) {
		f.While(func() {
			f.RedisDoes("FLUSHALL")
			time.Sleep(ttl + ttl/2)
		}, f.Any())
	}},
	{Name: "one record lost", Strike: func(f *field) {
		which := f.Lot.Int64N(8)
		if f.Role == "masked" {
			f.RedisDoes("DEL", key(which))
			return
		}
		f.RedisDoes("HDEL", poolKey, fmt.Sprint("s:", which))
	}},
	{Name: "index and names lost", Strike: func(f *field) { f.RedisDoes("DEL", poolKey+":ends", poolKey+":names") }},
	{Name: "master killed", Strike: func(f *field) { chaostest.KillMaster(f.Redis)() }},
	{Name: "master back empty", Strike: func(f *field) { f.Redis.Master().RestartEmpty() }},
	{Name: "master stopped, replaced, and going on", Strike: func(f *field) { chaostest.PauseMaster(f.Redis)() }},
	{Name: "master replaced by hand", Strike: func(f *field) { chaostest.ReplaceMaster(f.T.Context(), f.T, f.Redis) }},
	{Name: "master killed, and a process stopped", Strike: func(f *field) {
		f.While(func() {
			chaostest.KillMaster(f.Redis)()
			time.Sleep(ttl)
		}, f.Any())
	}},
}

const poolKey = "coatcheck:worker:{" + pool + "}"

// stopped freezes processes until their leases have ended for certain.
func (f *field) stopped(processes ...*chaostest.Member) {
	f.Freeze(ttl+ttl/2+rand.N(ttl/2), processes...)
}

// succeed has a process end in order, and another one come in its place.
func (f *field) succeed(p *chaostest.Member) {
	p.Finish()
	f.Replace(p)
}
