//go:build check

package chaos

import (
	"time"

	"github.com/coatcheck/coatcheck/chaos/internal/chaostest"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// fault is a kind of thing that breaks.
type fault struct {
	circumstances

	name   string
	moves  bool // the sentinels name another master, once
	tokens bool // operations are known by tokens only
	// only if all replicas confirm every write: with fewer it breaks what is promised
	all    bool
	doors  func(*rig) [][]*front        // who the clients ask: each of them one of these sets
	hits   func(*rig, *order) bool      // whether an order's first request can be broken by it
	strike func(s *scene) (mend func()) // breaks it, and returns what makes it whole again
}

func atGateways(r *rig) [][]*front { return [][]*front{r.gateways} }
func atOwners(r *rig) [][]*front   { return [][]*front{r.owners} }
func atBoth(r *rig) [][]*front     { return [][]*front{r.gateways, r.owners} }

func everyOne(*rig, *order) bool { return true }

// firstGateway and firstOwner are what breaks, where one of two does.
func atFirstGateway(r *rig, o *order) bool { return o.doors[0] == r.gateways[0] }
func atFirstOwner(r *rig, o *order) bool   { return o.doors[0] == r.owners[0] }

// kinds are all faults.
var kinds = []fault{
	{name: "owner killed", doors: atOwners, hits: atFirstOwner, strike: func(s *scene) func() { return killed(s.rig.owners[0]) }},
	{name: "gateway killed", doors: atGateways, hits: atFirstGateway, strike: func(s *scene) func() { return killed(s.rig.gateways[0]) }},
	{name: "service behind the gateways killed", doors: atGateways, hits: everyOne, strike: func(s *scene) func() { return killed(s.rig.upstream) }},
	{name: "owner stopped", doors: atOwners, hits: atFirstOwner, circumstances: circumstances{paused: true},
		strike: func(s *scene) func() { return stopped(s.rig.owners[0]) }},
	{name: "gateway stopped", doors: atGateways, hits: atFirstGateway, circumstances: circumstances{paused: true},
		strike: func(s *scene) func() { return stopped(s.rig.gateways[0]) }},
	{name: "master killed", doors: atBoth, hits: everyOne, moves: true, circumstances: circumstances{redis: true}, strike: masterKilled},
	{name: "master and gateway killed", doors: atBoth, hits: everyOne, moves: true, circumstances: circumstances{redis: true, recorder: true}, strike: func(s *scene) func() {
		gateway := killed(s.rig.gateways[0])
		master := masterKilled(s)
		return func() {
			gateway()
			master()
		}
	}},
	{name: "master stopped", doors: atBoth, hits: everyOne, moves: true, circumstances: circumstances{redis: true, former: true}, strike: masterStopped},
	{name: "everything in Redis lost", doors: atBoth, hits: everyOne, tokens: true, circumstances: circumstances{redis: true, flushed: true}, strike: emptied},
	{name: "master failed over alive", doors: atBoth, hits: everyOne, all: true, moves: true, circumstances: circumstances{redis: true, former: true}, strike: failedOver},
	{name: "master stopped until another is promoted", doors: atBoth, hits: everyOne, all: true, moves: true, circumstances: circumstances{redis: true, former: true},
		strike: stoppedForAMoment},
}

// killed kills what runs at a place; another process comes there soon.
func killed(f *front) func() {
	f.kill()
	return f.restart
}

// stopped freezes what runs at a place until its leases have ended for certain; then it goes on
// with what it was about to do.
func stopped(f *front) func() {
	c, _ := f.process()
	c.Stop()
	return func() {
		time.Sleep(lease + lease/3)
		c.Resume()
	}
}

// masterKilled kills Redis's master.
func masterKilled(s *scene) func() { return chaostest.KillMaster(s.rig.redis) }

// masterStopped freezes Redis's master until a replica has taken its place.
func masterStopped(s *scene) func() { return chaostest.PauseMaster(s.rig.redis) }

// emptied has Redis forget everything, on the replicas as well.
func emptied(s *scene) func() {
	expect.Error(s.t, "FLUSHALL", s.rig.redis.Master().Client().FlushAll(s.t.Context()).Err(), nil)
	return func() {}
}

// failedOver has Sentinel replace a master that is alive. For a while both serve, and the old one
// may keep a replica that confirms what it writes.
func failedOver(s *scene) func() {
	master := s.rig.redis.Master()
	expect.Error(s.t, "SENTINEL FAILOVER", s.rig.watch.Failover(s.t.Context()), nil)
	return func() { s.rig.redis.WaitForMaster(master) }
}

// stoppedForAMoment freezes the master, and lets it go on at the moment when Sentinel has promoted
// a replica and not yet told the other one.
func stoppedForAMoment(s *scene) func() {
	master, replicas := s.rig.redis.Master(), s.rig.redis.Replicas()
	master.Pause()
	return func() {
		chaostest.Await(s.t, time.Minute, func() string {
			for _, replica := range replicas {
				role, err := replica.Client().Do(s.t.Context(), "ROLE").Slice()
				if err == nil && len(role) > 0 && role[0] == "master" {
					return ""
				}
			}
			return "no replica is promoted"
		})
		master.Resume()
		s.rig.redis.WaitForMaster(master)
	}
}
