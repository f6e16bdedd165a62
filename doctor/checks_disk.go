package doctor

import (
	"fmt"

	"github.com/coatcheck/coatcheck/redisstore"
)

// asMaster softens what is found at a replica: it counts there once the replica is master.
func asMaster(s *Inspected, v verdict) verdict {
	if !s.Master && v.severity > Warning {
		return v.at(Warning)
	}
	return v
}

const restart = "issued tokens are refused and operations that were done can be done again under clients' own keys; worker ids are in " +
	"quarantine; counters jump; locks are free"

func persistence(_ *exam, s *Inspected) verdict {
	if s.Info["aof_enabled"] == "1" {
		return fine("appendonly yes")
	}
	rule, told := s.Config["save"]
	switch {
	case s.Info["aof_enabled"] == "" && (!told || rule == ""):
		return asMaster(s, warning("whether it keeps anything on disk cannot be seen",
			"if it keeps nothing, a restart loses all state: "+restart,
			"ask the operator of this Redis, or its console, for append-only persistence"))
	case told && rule == "":
		return asMaster(s, critical("keeps nothing on disk", "a restart loses all state: "+restart,
			"CONFIG SET appendonly yes, and appendonly yes in redis.conf"))
	case told:
		return asMaster(s, warning("writes to disk from time to time only (save "+rule+", appendonly no)",
			"a restart loses what came since: "+restart, "CONFIG SET appendonly yes, and appendonly yes in redis.conf"))
	}
	return warning("appendonly no; whether anything is saved cannot be seen", "a restart can lose state: "+restart,
		"turn on append-only persistence with the operator of this Redis")
}

func appendfsync(_ *exam, s *Inspected) verdict {
	if s.Info["aof_enabled"] != "1" {
		return verdict{}
	}
	switch s.Config["appendfsync"] {
	case "":
		return verdict{}
	case "always":
		return fine("appendfsync always: what is confirmed is on disk")
	case "no":
		return warning("appendfsync no", "a machine that loses power loses what the system had not written yet, often half a minute: "+
			restart, "CONFIG SET appendfsync everysec, or always")
	}
	v := note("appendfsync everysec", "a machine that loses power loses its last second or two of confirmed writes; a killed Redis "+
		"loses nothing, but it cannot show that: each restart counts as a possible loss, so that counters jump, templates without room "+
		"are refused, and new worker ids wait. Replicas and --ack keep them elsewhere; with one server alone: always",
		"CONFIG SET appendfsync always, and the same in redis.conf")
	if s.Config["no-appendfsync-on-rewrite"] == "yes" {
		v = warning("appendfsync everysec, and none at all while the file is rewritten (no-appendfsync-on-rewrite yes)",
			"a machine that loses power meanwhile loses half a minute of confirmed writes",
			"CONFIG SET no-appendfsync-on-rewrite no")
	}
	return v
}

// restarts judges whether this server keeps what a store that trusts restarts takes for granted.
func restarts(x *exam, s *Inspected) verdict {
	if x.Restarts != redisstore.RestartsTrust {
		return verdict{}
	}
	const risk = "--restarts trust takes old state for the latest one: ids, values and fences are handed out twice"
	heirs := x.heirsOf(s)
	switch {
	case s.Info["aof_enabled"] == "0":
		return critical("--restarts trust, and appendonly no", "after a restart "+risk,
			"appendonly yes and appendfsync always in redis.conf, or --restarts wait")
	case s.Config["appendfsync"] != "" && s.Config["appendfsync"] != "always":
		return critical("--restarts trust, and appendfsync "+s.Config["appendfsync"], "after a loss of power "+risk,
			"CONFIG SET appendfsync always, and the same in redis.conf, or --restarts wait")
	case s.Master && heirs > x.acksOf(s):
		return critical(fmt.Sprintf("--restarts trust, and --ack %d of %d replicas that can become master", x.Ack, heirs),
			"after a failover "+risk, fmt.Sprintf("--ack %d, or --restarts wait", heirs))
	case s.Info["aof_enabled"] == "" || s.Config["appendfsync"] == "":
		return warning("--restarts trust; whether each write is on disk before it is confirmed cannot be seen", "if it is not, "+risk,
			"ask the operator of this Redis for appendfsync always, or --restarts wait")
	}
	return fine("--restarts trust, and appendfsync always")
}

func diskErrors(_ *exam, s *Inspected) verdict {
	for _, name := range []string{"aof_last_write_status", "aof_last_bgrewrite_status", "rdb_last_bgsave_status"} {
		if s.Info[name] == "err" {
			return asMaster(s, critical(name+": err", "Redis refuses writes (MISCONF), or confirms what a restart will lose",
				"make room on the disk, or mend it: the log of Redis says why it could not write"))
		}
	}
	if s.Info["aof_last_write_status"] == "" {
		return verdict{}
	}
	return fine("the last writes to disk went well")
}

func eviction(_ *exam, s *Inspected) verdict {
	policy := s.Info["maxmemory_policy"]
	switch {
	case policy == "":
		return verdict{}
	case policy == "noeviction":
		return fine("maxmemory-policy noeviction")
	case number(s.Info["maxmemory"]) == 0:
		return warning("maxmemory-policy "+policy+", with no limit set yet",
			"once maxmemory is set, keys vanish under load: a token runs again, a worker id, a value or a lock is handed out twice",
			"CONFIG SET maxmemory-policy noeviction, and the same in redis.conf")
	}
	return critical("maxmemory-policy "+policy, "keys vanish when the memory is full: a token runs again, a worker id, a value or a "+
		"lock is handed out twice",
		"CONFIG SET maxmemory-policy noeviction, and the same in redis.conf")
}

// Shares of maxmemory from which it is near, and as good as reached.
const (
	nearlyFull = 0.85
	full       = 0.98
)

func memory(_ *exam, s *Inspected) verdict {
	used, most := number(s.Info["used_memory"]), number(s.Info["maxmemory"])
	if s.Info["used_memory"] == "" {
		return verdict{}
	}
	if most == 0 {
		return note("maxmemory is not set", "the system may end Redis when the machine's memory is full; what that loses is what "+
			"persistence does not keep", "CONFIG SET maxmemory <bytes>, and the same in redis.conf")
	}
	share := float64(used) / float64(most)
	found := fmt.Sprintf("%s of %s of memory in use, %.0f%%", size(used), size(most), share*100)
	risk, fix := "when it is full, writes are refused: nothing is issued, counted, leased or locked (with another policy than "+
		"noeviction keys vanish)", fmt.Sprintf("CONFIG SET maxmemory %d, and the same in redis.conf", 2*most)
	switch {
	case share >= full:
		return critical(found, risk, fix)
	case share >= nearlyFull:
		return warning(found, risk, fix)
	}
	return fine("%s of %s of memory in use", size(used), size(most))
}
