package doctor

import (
	"cmp"
	"fmt"
)

const readers = "any caller can read and change everything: take leases and locks, see answers, set counters back"

func password(x *exam, s *Inspected) verdict {
	switch {
	case x.LoggedIn:
		return fine("asks for a password")
	case s.Loopback:
		return note("no password, on this host alone", "every program on this host can read and change everything",
			"CONFIG SET requirepass <password>, and the password in --redis")
	}
	found := "no password"
	if s.Config["protected-mode"] == "no" {
		found += ", and protected-mode no"
	}
	return warning(found, readers, "CONFIG SET requirepass <password>, and the password in --redis")
}

func encrypted(x *exam, s *Inspected) verdict {
	switch {
	case x.TLS:
		return fine("TLS")
	case s.Loopback:
		return verdict{}
	}
	return warning("no TLS", "who can listen on the way reads passwords, leases and stored answers, and can change what is written",
		"tls-port in redis.conf, and rediss:// (or ?tls=true) in --redis")
}

func settingsSeen(_ *exam, s *Inspected) verdict {
	if s.ConfigUnseen == "" && len(s.Info) > 0 {
		return fine("tells its settings")
	}
	return note("its settings cannot be seen: "+cmp.Or(s.ConfigUnseen, "INFO is not answered"),
		"saving and appendfsync, min-replicas, the backlog, time limits and notifications were not judged: a managed Redis has them in "+
			"its console",
		"ACL SETUSER <user> +config|get +info, where you run it yourself")
}

func clients(_ *exam, s *Inspected) verdict {
	most, now := number(s.Config["maxclients"]), number(s.Info["connected_clients"])
	if most == 0 {
		return verdict{}
	}
	if now*10 >= most*9 {
		return warning(fmt.Sprintf("%d of %d connections are taken", now, most),
			"the next is refused: calls fail as refused, and replicas may not come back",
			fmt.Sprintf("CONFIG SET maxclients %d, and fewer in pool_size", 2*most))
	}
	return fine("%d connections at most", most)
}

func idleTimeout(_ *exam, s *Inspected) verdict {
	text, told := s.Config["timeout"]
	if !told {
		return verdict{}
	}
	if text != "0" {
		return note("timeout "+text+" s", "Redis closes connections that rest: the next call on one may have to dial first, and "+
			"takes longer", "CONFIG SET timeout 0")
	}
	return fine("keeps connections that rest")
}

func keepalive(_ *exam, s *Inspected) verdict {
	text, told := s.Config["tcp-keepalive"]
	if !told {
		return verdict{}
	}
	if text == "0" {
		return note("tcp-keepalive 0", "connections of hosts that have vanished stay for ever, and fill maxclients",
			"CONFIG SET tcp-keepalive 300")
	}
	return fine("tcp-keepalive %s s", text)
}

// scriptLimit is after how long Redis answers BUSY to others while a script runs.
func scriptLimit(x *exam, s *Inspected) verdict {
	for _, name := range []string{"busy-reply-threshold", "lua-time-limit"} {
		switch text, told := s.Config[name]; {
		case told && number(text) <= 0:
			return note(name+" "+text, "a script of any client that hangs holds up all calls, and no client can see or end it: "+
				"leases run out", "CONFIG SET "+name+" 5000")
		case told:
			return fine("%s %s ms", name, text)
		}
	}
	return verdict{}
}

func notifications(_ *exam, s *Inspected) verdict {
	text, told := s.Config["notify-keyspace-events"]
	if !told {
		return verdict{}
	}
	if text != "" {
		return note("notify-keyspace-events "+text,
			"coatcheck does not need it: each write costs more, and names of counters, pools and locks are published",
			`CONFIG SET notify-keyspace-events ""`)
	}
	return fine("no keyspace notifications")
}

func hugePages(_ *exam, s *Inspected) verdict {
	if s.Config["disable-thp"] != "no" {
		return verdict{}
	}
	return note("disable-thp no", "where the system has transparent huge pages on, each save or rewrite makes writes slow for a moment: "+
		"calls may end before Redis answers", "disable-thp yes in redis.conf, and a restart")
}

func database(x *exam) []verdict {
	if x.Database == 0 {
		return nil
	}
	return []verdict{note(fmt.Sprintf("database %d", x.Database),
		"none by itself; but memory, eviction, FLUSHALL and a loss are of all databases together, and a cluster has only 0",
		"a Redis of its own for coatcheck")}
}
