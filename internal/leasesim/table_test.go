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
	{"renewalNotices", renewalNotices, "renewals notice loss, too", "only acquires do", staleFailover | restartOld | thereAndBack | serverClocks | everyday | suspends, 1, true, repeat, false},
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
	{"coverKept", coverKept, "what all have confirmed once, all confirm from then on", "a caller that confirms by fewer lowers the cover", lag | thereAndBack | churn | fewerAcks, 4, false, repeat, false},
	{"usableID", usableID, "a server whose id never changes is refused", "it is one that loses nothing", noID | flush | restartOld | churn, 4, false, repeat, false},
	{"askedEachTime", askedEachTime, "each call asks for the id", "each connection does, and a proxy keeps those", proxy | staleFailover | restartOld | churn, 4, false, repeat, false},
	{"promotionNoted", promotionNoted, "another master goes on only where the id before is the noted one", "whatever came before", thereAndBack | aside | failover | twice | churn, 4, false, repeat, false},
	{"promotionNamed", promotionNamed, "and where the word names its run", "any run", staleFailover | churn, 4, false, repeat, false},
	{"noPromotion", noPromotion, "in a cluster no other master goes on", "as in a Sentinel set, with the run that the list names", returns | churn, 4, false, repeat, false},
	{"epochNoted", epochNoted, "in a cluster a server goes on only in the noted epoch", "in any", returns | churn, 4, false, repeat, false},
	{"confirmedOffset", confirmedOffset, "all that the server has is waited for", "what a call has written, and a repeat writes nothing", splitAlone | everyday, 4, false, repeat, false},
	{"byAddress", byAddress, "each place confirms by itself", "replicas are counted", lag | tools | churn, 4, false, repeat, false},
	{"placesKept", placesKept, "the places of the word have to confirm", "those that are listed", sights | churn, 4, false, repeat, false},
	{"placesStay", placesStay, "also after a loss", "then those that are listed", sights | churn, 4, false, repeat, false},
	{"masterOnly", masterOnly, "a server that is no master is refused", "one that takes writes is asked", writable | lag | churn | fewerAcks, 4, false, repeat, false},
	{"renamedRun", renamedRun, "a history was only renamed if the run is the noted one", "if no other came before", restartOld | renames | churn | alone, 4, false, repeat, false},
	{"renamedInput", renamedInput, "and the server has read from no master since", "whatever it has read", lag | thereAndBack | staleFailover | renames | churn, 4, true, repeat, false},
	{"diskAsked", diskAsked, "a restart loses nothing only where all that is confirmed is on disk", "nowhere", restartOld | churn | alone, 4, false, repeat, false},
	{"restoredTold", restoredTold, "A6: who starts a server from a copy, or resumes one from a snapshot, says so", "nobody does", snapshots | churn, 4, false, repeat, false},
	{"allListed", allListed, "a replica that any sentinel lists has to confirm", "one that the first of them lists", sights | churn | pauses, 4, false, repeat, false},
	{"mostAnswer", mostAnswer, "more than half of the sentinels have to answer", "one has to", sights | churn, 4, false, repeat, false},
	{"listWhole", listWhole, "the list that the first call sees is whole", "some sentinels have begun anew", sights | churn, 4, false, repeat, false},
	{"ownPlace", ownPlace, "a server's place is given to no other one while it lives", "it is", lag | tools | churn, 4, false, repeat, false},
	{"goneStay", goneStay, "replicas of which an operator says that they are gone do not become master", "one that was away does", gone | cuts | churn, 4, false, repeat, false},
	{"followMaster", followMaster, "no replica follows another one and is promoted", "one is", lag | chains | churn, 4, false, repeat, false},
	{"attachedNoted", attachedNoted, "a replica that is attached at a call has to confirm what follows, and is noted for other processes", "what is listed has to confirm", sights | addresses | cuts | tokens | everyday, 4, false, claimedTwice, true},
	{"askedWhenOld", askedWhenOld, "a process that has made no call for long asks again which places there are", "it goes on with what it knew", sights | tokens | messages | pauses, 4, false, claimedTwice, true},
	{"toldStays", toldStays, "a place that a process knows from a word alone is noted in no other word", "it is", gone | cuts | tokens | everyday, 4, false, waited, true},
	{"refusedNotes", refusedNotes, "a call that is refused notes the replicas that are attached, too", "only one that is answered does", sights | snapshots | restartOld | splitAlone | everyday, 4, false, repeat, false},
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
