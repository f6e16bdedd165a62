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

// fault is a kind of thing that breaks, and is made whole again.
type fault struct {
	name   string
	long   bool // it is left out of a run beside other tests
	strike func(*field)
}

const cutOff = "master cut off, and serving on"

// both is how long there are two masters that serve their sides, as far as enough replicas confirm
// it.
const both = time.Second

var kinds = []fault{
	{"master killed", false, func(f *field) { chaostest.KillMaster(f.Redis)() }},
	{"master replaced by hand", false, func(f *field) { chaostest.ReplaceMaster(f.T.Context(), f.T, f.Redis) }},
	{cutOff, false, func(f *field) { f.cutOff() }},
	{"master and a replica cut off, and serving on", true, func(f *field) { f.cutOff(f.Redis.Replicas()[f.Lot.IntN(2)]) }},
	{"master back empty", false, func(f *field) { f.Redis.Master().RestartEmpty() }},
	{"everything in Redis lost", false, func(f *field) { f.RedisDoes("FLUSHALL") }},
	{"everything in Redis lost as counters begin", true, func(f *field) {
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
	{"everything in Redis lost, and a process stopped", true, func(f *field) {
		p := f.any()
		p.Stop()
		f.RedisDoes("FLUSHALL")
		f.await(1, slices.DeleteFunc(slices.Clone(f.Processes), func(other *process) bool { return other == p })...)
		p.Resume()
	}},
	{"master stopped, replaced, and going on", false, func(f *field) { chaostest.PauseMaster(f.Redis)() }},
	// one that all have seen
	{"one counter lost", false, func(f *field) { f.lose(2 * f.Lot.IntN(counters/2)) }},
	{"process killed", false, func(f *field) {
		p := f.any()
		p.Kill()
		f.Replace(p)
	}},
	{"Redis pauses writes, and runs them later", false, func(f *field) {
		const span = 700 * time.Millisecond
		// the sentinels' writes too, and so they may replace it
		f.RedisDoes("CLIENT", "PAUSE", span.Milliseconds(), "WRITE")
		time.Sleep(span)
	}},
}

// beyond are faults that the assumptions leave out: what is found is only reported.
var beyond = []fault{
	{"everything in Redis lost, and a process started at once", true, func(f *field) {
		p := f.any()
		p.Kill()
		f.RedisDoes("FLUSHALL")
		f.Replace(p)
	}},
	{"one counter lost that not all have seen", true, func(f *field) { f.lose(2*f.Lot.IntN(counters/2) + 1) }},
}

// lose deletes a counter.
func (f *field) lose(which int) { f.RedisDoes("DEL", keyOf(counterOf(which, moment()).String())) }

// any is one of the processes, by lot.
func (f *field) any() *process { return f.Processes[f.Lot.IntN(len(f.Processes))] }

// cutOff cuts the master and some replicas off from all others and from the sentinels, which name
// another one. Processes on its side are served by it until it is told.
func (f *field) cutOff(with ...*redistest.Server) {
	master := f.Redis.Master()
	side := append([]*redistest.Server{master}, with...)
	others := []string{sentinels}
	for _, server := range f.servers {
		if !slices.Contains(side, server) {
			others = append(others, server.Addr())
		}
	}
	remote := f.beside(master, 2)
	f.await(1, remote...)
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
	for _, p := range remote {
		f.finish(p)
	}
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
