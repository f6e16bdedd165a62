//go:build check

package counters

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coatcheck/coatcheck/chaos/internal/chaostest"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
)

const cutOff = "master cut off, and serving on"

// both is how long there are two masters that serve their sides, as far as enough replicas confirm
// it.
const both = time.Second

var kinds = []chaostest.Fault[*field]{
	{Name: "master killed", Strike: func(f *field) { chaostest.KillMaster(f.Redis)() }},
	{Name: "master replaced by hand", Strike: func(f *field) { chaostest.ReplaceMaster(f.T.Context(), f.T, f.Redis) }},
	{Name: cutOff, Strike: func(f *field) { f.cutOff() }},
	{Name: "master and a replica cut off, and serving on", Long: true, Strike: func(f *field) { f.cutOff(f.Redis.Replicas()[f.Lot.IntN(2)]) }},
	{Name: "master back empty", Strike: func(f *field) { f.Redis.Master().RestartEmpty() }},
	{Name: "everything in Redis lost", Strike: func(f *field) { f.RedisDoes("FLUSHALL") }},
	{Name: "everything in Redis lost as counters begin", Long: true, Strike: func(f *field) {
		began := moment()/int64(scene) + 1
		chaostest.Await(f.T, time.Minute, func() string {
			if moment()/int64(scene) < began {
				return "no scene begins"
			}
			return ""
		})
		time.Sleep(time.Duration(f.Lot.IntN(200)) * time.Millisecond)
		f.RedisDoes("FLUSHALL")
	}},
	{Name: "everything in Redis lost, and a process stopped", Long: true, Strike: func(f *field) {
		p := f.Any()
		f.While(func() {
			f.RedisDoes("FLUSHALL")
			f.Await(incrementBytes, f.Others(p)...)
		}, p)
	}},
	{Name: "master stopped, replaced, and going on", Strike: func(f *field) { chaostest.PauseMaster(f.Redis)() }},
	// one that all have seen
	{Name: "one counter lost", Strike: func(f *field) { f.lose(2 * f.Lot.IntN(counters/2)) }},
	{Name: "process killed", Strike: func(f *field) { f.Kill(f.Any()) }},
	{Name: "Redis pauses writes, and runs them later", Strike: func(f *field) {
		const span = 700 * time.Millisecond
		// the sentinels' writes too, and so they may replace it
		f.RedisDoes("CLIENT", "PAUSE", span.Milliseconds(), "WRITE")
		time.Sleep(span)
	}},
}

// beyond are faults that the assumptions leave out: what is found is only reported.
var beyond = []chaostest.Fault[*field]{
	{Name: "everything in Redis lost, and a process started at once", Long: true, Strike: func(f *field) {
		p := f.Any()
		p.Kill()
		f.RedisDoes("FLUSHALL")
		f.Replace(p)
	}},
	{Name: "one counter lost that not all have seen", Long: true, Strike: func(f *field) { f.lose(2*f.Lot.IntN(counters/2) + 1) }},
}

// lose deletes a counter.
func (f *field) lose(which int) { f.RedisDoes("DEL", keyOf(counterOf(which, moment()).String())) }

// cutOff cuts the master and some replicas off from all others and from the sentinels, which name
// another one. It serves processes on its side until it is told. A process that knows one server
// has no list of the replicas. It is refused where others wait for all, so none starts there.
func (f *field) cutOff(with ...*redistest.Server) {
	master := f.Redis.Master()
	side := append([]*redistest.Server{master}, with...)
	others := []string{sentinels}
	for _, server := range f.servers {
		if !slices.Contains(side, server) {
			others = append(others, server.Addr())
		}
	}
	var remote []*chaostest.Member
	if f.Numbers {
		remote = f.beside(master, 2)
		f.Await(incrementBytes, remote...)
	}
	var mends []func()
	for _, server := range side {
		mends = append(mends, f.cut(server, others...))
	}
	f.Redis.WaitForMaster(master)
	time.Sleep(both)
	for _, mend := range mends {
		mend()
	}
	f.awaitDemoted(master)
	f.End(remote...)
}

// awaitDemoted waits until a master has been told that it is none.
func (f *field) awaitDemoted(master *redistest.Server) {
	chaostest.Await(f.T, time.Minute, func() string {
		var info string
		err := f.as(master, func(ctx context.Context, client *redis.Client) (err error) {
			info, err = client.Info(ctx, "replication").Result()
			return err
		})
		if err != nil || !strings.Contains(info, "role:slave") {
			return "the old master has not been told"
		}
		return ""
	})
}
