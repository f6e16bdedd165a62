package leasesim

import (
	"fmt"
	"strings"
)

// mutation is the protocol without one rule, or the world without one assumption.
type mutation struct {
	name   string
	rule   rule
	says   string // the rule
	gone   string // what is done instead
	faults class  // the faults that tell
	ring   int
	bursts bool
	breaks breach

	durable bool
}

const loss = flush | staleFailover | restartOld

// mutations are all rules and assumptions. Faults and ring are such that a few seeds tell.
var mutations = []mutation{
	{"windowInID", windowInID, "a stamp is made only if its timestamp lies in the confirmed window", "the holder's deadline alone decides, as with a plain TTL", pauses | suspends | churn, 4, false, repeat, false},
	{"behindLast", behindLast, "a window begins where the last window of the slot ended, if that is later than now", "it begins now", churn | serverClocks, 4, false, repeat, false},
	{"endsInTime", endsInTime, "a window that begins later ends no later", "it is a whole TTL long", restartEmpty | churn | coarse | pauses, 2, false, repeat, false},
	{"quarantine", quarantine, "noticed loss of state starts a quarantine", "granting goes on", flush | churn, 4, false, repeat, false},
	{"refusal", refusal, "in quarantine nothing is granted", "windows are granted that begin after it", flush | churn, 4, false, repeat, false},
	{"quarantineSkew", quarantineSkew, "a quarantine lasts longest TTL + S", "the longest TTL alone", staleFailover | serverClocks | pauses | suspends, 4, false, repeat, false},
	{"longestTTL", longestTTL, "the longest TTL is the longest that is allowed", "the one that is known of, or asked for", flush | pauses | churn | defaultTTLs, 4, false, repeat, false},
	{"renewalNotices", renewalNotices, "renewals notice loss, too", "only acquires do", staleFailover | restartOld | serverClocks | everyday | suspends, 1, true, repeat, false},
	{"replidMarker", replidMarker, "the marker is the replication id", "the process's run_id", thereAndBack | staleFailover | everyday, 4, false, repeat, false},
	{"restartDoubted", restartDoubted, "another incarnation may have lost something", "it has all that is there (`--restarts trust`)", restartOld | churn, 4, false, repeat, false},
	{"countedRecords", countedRecords, "a wrong number of records is a loss", "it is not counted", deleteRecord | churn, 4, false, repeat, false},
	{"unknownIsLost", unknownIsLost, "an unknown pool is a lost one", "a new one (`--new-pools trust`)", flush | churn, 4, false, repeat, false},
	{"declareKept", declareKept, "declaring a pool new changes nothing where there is one", "it ends the quarantine", staleFailover | declare | churn, 4, false, repeat, false},
	{"proofNonce", proofNonce, "a renewal is for the nonce in the record", "the name of the slot is enough", flush | everyday, 4, false, repeat, false},
	{"proofBegin", proofBegin, "and for the begin in the record", "the nonce is enough", everyday, 2, false, repeat, false},
	{"neverRevived", neverRevived, "an ended window is never renewed", "it is while the slot is not taken", loss | everyday | suspends, 4, false, repeat, false},
	{"aliveSkew", aliveSkew, "in quarantine a renewal needs a window that is open for S more", "one that is open", staleFailover | restartOld | serverClocks | everyday | suspends, 1, true, repeat, false},
	{"restoreProof", restoreProof, "a vanished record is restored while its confirmed window is open", "whenever its holder asks", flush | everyday, 4, false, repeat, false},
	{"restoreSkew", restoreSkew, "and for S more", "no longer than that", restartEmpty | everyday | suspends, 1, false, repeat, false},
	{"restoreOlder", restoreOlder, "a record is restored over one that had ended before", "over any", messages | churn, 2, false, repeat, false},
	{"ackAny", ackAny, "grants and renewals count when they are acknowledged", "when they are answered", splitAlone | churn, 4, false, repeat, false},
	{"ackAll", ackAll, "by every replica that can be promoted", "by all but one", splitWith | splitAlone | churn, 4, false, repeat, false},
	{"repeatWrites", repeatWrites, "a repeated acquire writes its record again", "it answers, and WAIT has nothing to wait for", splitAlone | everyday, 4, false, repeat, false},
	{"repeatOpen", repeatOpen, "a repeated acquire answers the same window only while that is open", "whenever the record is there", splitAlone | splitWith | staleFailover | messages, 4, false, repeat, false},
	{"releaseUsed", releaseUsed, "a release leaves the last stamp inside of the window", "the window ends now", churn | serverClocks, 4, false, repeat, false},
	{"clockUsed", clockUsed, "of a command that has ended, which was told a clock, what it used ends a unit after where that had come to", "where the clock that it was told last is", coarse | churn | commands, 2, false, repeat, false},
	{"recordsStay", recordsStay, "records do not expire", "each goes with its window", churn | serverClocks, 4, false, repeat, false},
	{"freeOnly", freeOnly, "only a slot is granted whose window has ended", "the next one in the ring", churn, 4, false, robbed, false},
	{"oneTTL", oneTTL, "the TTL is the pool's", "each caller's own", twoTTLs | staleFailover | deleteRecord | churn, 4, false, repeat, false},
	{"shapePinned", shapePinned, "a pool that is new gets the shape that it is configured to have", "the default", flush | churn | shapes, 4, false, shaped, false},
	{"identityEnded", identityEnded, "an identity gets its worker id again when its window has ended", "at once", churn | twins, 4, false, robbed, false},
	{"fenceOfTime", fenceOfTime, "a fence is not less than the time", "one more than the last", flush | churn, 4, false, order, false},
	{"fenceNext", fenceNext, "a fence is larger than the last", "the time alone", churn | serverClocks, 4, false, order, false},
	{"anchored", anchored, "stamps come from the server's time and monotonic time since", "from the wall clock", clientClocks, 4, false, wrong, false},
	{"anchorReceived", anchorReceived, "server's time is paired with the moment the reply came", "the request went", messages, 4, false, wrong, false},
	{"localDeadline", localDeadline, "a holder stops TTL - margin after its last confirmed request", "when a renewal is refused", messages | pauses | churn | clientClocks, 4, false, both, false},
	{"deadlineSent", deadlineSent, "counted from when that was sent", "answered", messages | pauses | churn, 4, false, both, false},
	{"deadlineAge", deadlineAge, "less the age of a grant that was asked for again", "as if it were new", messages | pauses | churn, 2, false, both, false},
	{"wallDeadline", wallDeadline, "a holder stops when as much wall time has gone by", "monotonic time decides alone", suspends, 4, false, both, false},
	{"coolDown", coolDown, "a slot rests after its window", "the longest free is granted", cooling | churn, 4, false, warm, false},
	{"clocksAgree", clocksAgree, "A2: servers' clocks are within S/2 of one time base", "within a TTL", flush | serverClocks | churn, 4, false, repeat, false},
	{"alike", alike, "A3: all clients of a pool allow one longest TTL", "half of them a shorter one, and all state is lost", flush | churn | pauses, 4, false, repeat, false},
	{"handsOff", handsOff, "A4: no operator edits a pool", "a record is deleted and the count put right", deleteRecord | churn, 4, false, repeat, false},
	{"declaredUnused", declaredUnused, "A5: a pool is declared new only while it is not in use", "after a loss as well", flush | declare | churn, 4, false, repeat, false},
	{"promotionNoted", promotionNoted, "another master goes on only where the id before is the noted one", "whatever came before", restartOld | restartEmpty | failover | churn, 4, false, repeat, false},
	{"promotionRead", promotionRead, "and has read from a master in this run", "or from a file alone", staleFailover | churn, 4, false, repeat, false},
	{"promotionWhole", promotionWhole, "and has a backlog, so that it has read all of its master's data", "or a part", staleFailover | thereAndBack | churn, 4, false, repeat, false},
	{"promotionCovered", promotionCovered, "and where every server that can become master confirms", "where fewer do, too", lag | failover | churn | fewerAcks, 4, false, repeat, false},
	{"byAddress", byAddress, "a replica that has come does not confirm in the place of one that is away", "replicas are counted", lag | standIns | churn, 4, false, repeat, false},
	{"coverKept", coverKept, "what all have confirmed once, all confirm from then on", "a caller that confirms by fewer lowers the cover", lag | thereAndBack | churn | fewerAcks, 4, false, repeat, false},
	{"renamedRun", renamedRun, "a history was only renamed if the run is the noted one", "if no other came before", restartOld | renames | churn, 4, false, repeat, false},
	{"renamedInput", renamedInput, "and the server has read from no master since", "whatever it has read", lag | thereAndBack | staleFailover | renames | churn, 4, true, repeat, false},
	{"diskAsked", diskAsked, "a restart loses nothing only where all that is confirmed is on disk", "nowhere", restartOld | churn, 4, false, repeat, false},
	{"movedFromPeer", movedFromPeer, "a pool has moved only from a master that lives under the noted id", "from anywhere", moves | restartOld | churn, 4, false, repeat, false},
	{"usableID", usableID, "a server whose id never changes is refused", "it is one that loses nothing", noID | flush | restartOld | churn, 4, false, repeat, false},
	{"askedEachTime", askedEachTime, "each call asks for the id", "each connection does, and a proxy keeps those", proxy | staleFailover | restartOld | churn, 4, false, repeat, false},
	{"restoredTold", restoredTold, "A6: who starts a server from a copy says so", "nobody does, where restarts lose nothing", copies | churn, 4, false, repeat, true},
	{"moveKept", moveKept, "A7: no master dies before its replicas have what has moved to it", "one does", lag | failover | moves | churn, 4, true, repeat, false},
	{"asideInput", asideInput, "a former master that is one again goes on only if it has read from no master since", "whatever it has read", aside | churn, 4, false, repeat, false},
	{"asideCovered", asideCovered, "and where every server that can become master confirms", "where fewer do, too", aside | churn | fewerAcks, 4, false, repeat, false},
	{"caughtUp", caughtUp, "A8: no replica that has started again is promoted while it reads what it has missed", "one is", staleFailover | churn, 4, false, repeat, false},
	{"replicasKept", replicasKept, "a process that starts at a plain URL learns from Redis which replicas have confirmed", "it sees those that are attached", forgets | churn, 4, false, repeat, false},
	{"restartKeeps", restartKeeps, "a master that has started from a file is none of the replicas that it had", "it is if it shows the noted id as the one before", forgets | restartWhole | churn, 4, false, repeat, false},
	{"oneTakenOff", oneTakenOff, "of replicas that are not attached one alone can be the one that was promoted", "none that is not attached has to confirm to one that was promoted", forgets | failover | natted | churn, 4, false, repeat, false},
	{"eachBehind", eachBehind, "behind one address each replica has to confirm", "one has to", forgets | shared | churn, 4, false, repeat, false},
	{"comeCounts", comeCounts, "a write that finds a replica unknown does not count", "later ones wait for it", lag | forgets | standIns | churn, 4, false, repeat, false},
	{"askedAfter", askedAfter, "nor one that such a replica may have confirmed, which has come meanwhile", "it counts", lag | forgets | failover | churn, 4, false, repeat, false},
	{"askedWhenOld", askedWhenOld, "a process that made no call for long asks first which replicas there are", "beside its next call", forgets | pauses | suspends | churn, 4, false, repeat, false},
	{"allListed", allListed, "a replica that any sentinel lists has to confirm", "one that the first of them lists", sentinels | churn, 4, false, repeat, false},
	{"mostAnswer", mostAnswer, "more than half of the sentinels have to answer", "one has to", sentinels | churn, 4, false, repeat, false},
	{"someRemember", someRemember, "A1: not all sentinels that answer were started anew while a replica is away", "all may be", sentinels | churn, 4, false, repeat, false},
	{"comeFirst", comeFirst, "A1: a replica that comes has confirmed a write before it is promoted after it was away", "it has not", forgets | addresses | churn, 4, false, repeat, false},
	{"mastersAsked", mastersAsked, "a replica that any master of a cluster lists has to confirm", "one that its own master lists", masters | churn, 4, false, repeat, false},
	{"beforeKept", beforeKept, "a replica that was away while another was promoted has to confirm", "it has to once it follows that one", masters | failover | churn, 4, false, repeat, false},
	{"mostMasters", mostMasters, "more than half of the masters have to answer", "one has to", masters | churn, 4, false, repeat, false},
	{"othersKnow", othersKnow, "A1: a replica that may come back is not forgotten by all masters that answer", "it may be", masters | churn, 4, false, repeat, false},
	{"goneStay", goneStay, "A1: replicas of which an operator says that they are gone do not become master", "one that was away does", forgets | gone | churn, 4, false, repeat, false},
}

// rulesNamed reads names as -remove has them.
func rulesNamed(names string) (ruleSet, error) {
	var named []rule
	for name := range strings.SplitSeq(names, ",") {
		found := name == ""
		for _, m := range mutations {
			if m.name == name {
				named = append(named, m.rule)
				found = true
			}
		}
		if !found {
			return ruleSet{}, fmt.Errorf("there is no rule %q", name)
		}
	}
	return without(named...), nil
}

// classesNamed reads names as -faults has them.
func classesNamed(names string) (all class, err error) {
	for name := range strings.SplitSeq(names, ",") {
		switch name {
		case "":
			continue
		case "all":
			all |= everyFault
			continue
		}
		found := false
		for i, known := range classNames {
			if known == name {
				all |= 1 << i
				found = true
			}
		}
		if !found {
			return 0, fmt.Errorf("there is no class of faults %q", name)
		}
	}
	return all, nil
}

// String is what -faults reads.
func (c class) String() string {
	if c == everyFault {
		return "all"
	}
	var names []string
	for i, name := range classNames {
		if c&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, ",")
}

// String is what -remove reads.
func (s ruleSet) String() string {
	var names []string
	for _, m := range mutations {
		if s.has(m.rule) {
			names = append(names, m.name)
		}
	}
	return strings.Join(names, ",")
}

// String names a rule.
func (r rule) String() string { return without(r).String() }
