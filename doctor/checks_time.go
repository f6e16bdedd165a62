package doctor

import (
	"fmt"
	"time"
)

// clocksApart compares the clocks of servers that can be master. Worker ids and fences need them.
func clocksApart(x *exam) []verdict {
	var first, last *Inspected
	var within time.Duration
	known := 0
	for i := range x.Servers {
		s := &x.Servers[i]
		if s.Away != "" || s.Clock.Err != "" {
			continue
		}
		known++
		if first == nil || s.Clock.Offset < first.Clock.Offset {
			first = s
		}
		if last == nil || s.Clock.Offset > last.Clock.Offset {
			last = s
		}
		within = max(within, s.Clock.Within)
	}
	if known < 2 {
		return nil
	}
	apart, doubt := last.Clock.Offset-first.Clock.Offset, 2*within
	found := fmt.Sprintf("clocks of servers are %s apart (±%s): %s is behind, %s is ahead", short(apart), short(doubt),
		first.Addr, last.Addr)
	risk := "after a failover fences can go back, and a worker id can be granted while its last window is still open: --clock-skew " +
		"allows " + x.ClockSkew.String()
	fix := "set the clocks by NTP (chronyc tracking); until then --clock-skew " + (apart + doubt).Round(time.Millisecond).String()
	switch {
	case apart-doubt > x.ClockSkew:
		return []verdict{critical(found, risk, fix)}
	case apart+doubt > x.ClockSkew:
		return []verdict{note(found+"; the network is too slow to tell if that is too much", risk,
			"run this from a host that is nearer to them")}
	}
	return []verdict{fine("clocks of servers agree to %s (±%s)", short(apart), short(doubt))}
}

func clockHere(x *exam, s *Inspected) verdict {
	if s.Clock.Err != "" {
		return note("its clock cannot be seen: "+s.Clock.Err, "scripts need TIME as well", "ACL SETUSER <user> +time")
	}
	off := s.Clock.Offset.Abs()
	direction := "ahead of"
	if s.Clock.Offset < 0 {
		direction = "behind"
	}
	if off-s.Clock.Within <= x.ClockSkew {
		return fine("its clock agrees with this host's to %s", agreement(off+s.Clock.Within))
	}
	return warning(fmt.Sprintf("its clock is %s %s this host's (±%s)", short(off), direction, short(s.Clock.Within)),
		"Redis decides by its own clock, so nothing is granted twice; but dates in counters' keys and numbers follow this host's, times "+
			"in answers and logs do not agree, and ids that were stamped elsewhere sort wrongly",
		"set both clocks by NTP (chronyc tracking)")
}

// agreement is a bound for people: the same for all who are well below it, so that servers in order
// are told of together.
func agreement(d time.Duration) time.Duration {
	for _, bound := range []time.Duration{time.Millisecond, 10 * time.Millisecond, 100 * time.Millisecond} {
		if d <= bound {
			return bound
		}
	}
	return d.Round(100*time.Millisecond) + 100*time.Millisecond
}

func latency(x *exam, s *Inspected) verdict {
	took := s.Script
	if took.N == 0 {
		return verdict{}
	}
	found := fmt.Sprintf("a script takes p50 %s, p99 %s, at most %s (PING p99 %s), with --store-timeout %v", short(took.P50),
		short(took.P99), short(took.Max), short(s.Ping.P99), x.StoreTimeout)
	switch {
	case took.P99 > x.StoreTimeout:
		return critical(found, "calls end before Redis answers: each is an unknown outcome, leases are lost, locks' holders stop",
			fmt.Sprintf("--store-timeout %v; or run nearer to Redis", (4*took.P99).Round(10*time.Millisecond)))
	case took.P99 > x.StoreTimeout/4:
		return warning(found, "the next slow moment ends calls before Redis answers: unknown outcomes, lost leases",
			fmt.Sprintf("--store-timeout %v; or run nearer to Redis", (4*took.P99).Round(10*time.Millisecond)))
	}
	return fine("a script takes p50 %s, p99 %s", short(took.P50), short(took.P99))
}
