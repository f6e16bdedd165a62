package leasesim

// rule is one rule of the protocol or one assumption, 0 is none.
type rule int

// ruleSet are rules, as a simulation may run with some of them removed.
type ruleSet [2]uint64

// without is the set of these rules.
func without(removed ...rule) (set ruleSet) {
	for _, r := range removed {
		if r > 0 {
			set[r/64] |= 1 << (r % 64)
		}
	}
	return set
}

func (s ruleSet) has(r rule) bool { return s[r/64]&(1<<(r%64)) != 0 }

// The rules. Each is said as what the protocol does while the rule stands; table_test.go says what
// is done instead when it does not.
const (
	// a stamp is made only if the timestamp in it lies in the confirmed window.
	windowInID rule = 1 + iota
	// a window begins at the recorded end of the last one, if that is later than now.
	behindLast
	// a window that begins later than now does not end later than now + TTL.
	endsInTime
	quarantine // noticed loss starts a quarantine
	// in quarantine nothing is granted, not even windows that begin after it.
	refusal
	quarantineSkew // a quarantine is longer than the TTL by S
	renewalNotices // a renewal notices loss, too
	replidMarker   // the marker is the replication id, not the id of the process
	countedRecords // a wrong count of records is a loss
	unknownIsLost  // an unknown pool is a lost one
	declareKept    // declaring a pool new changes nothing while there is a pool
	proofNonce     // a renewal is for the record's nonce
	proofBegin     // a renewal is for the record's begin
	neverRevived   // a renewal needs an open window
	aliveSkew      // in quarantine, open means open for S more
	// a vanished record is restored only while its confirmed window is open.
	restoreProof
	restoreSkew  // for S more
	restoreOlder // over a record that is there only if that one ended before
	ackAny       // a grant or renewal counts when it was acknowledged at all
	ackAll       // by all replicas, not all but one
	repeatWrites // a repeated acquire writes its record again
	repeatOpen   // and is answered its window only while that is open
	releaseUsed  // a release leaves the last stamp used inside the window
	recordsStay  // slot records do not expire
	// only a slot whose window has ended is granted, not simply the next one.
	freeOnly
	oneTTL      // the pool's TTL is the pool's
	fenceOfTime // a fence is not less than the time
	fenceNext   // a fence is more than the last one
	anchored    // stamps come from the anchored clock, not the wall clock
	// the anchored clock pairs the server's time with the moment its reply came, not the request's.
	anchorReceived
	// a holder stops TTL - margin after it sent its last confirmed request.
	localDeadline
	deadlineSent // after it sent that, not after it had the reply
	deadlineAge  // and earlier, if it was answered an older grant
	wallDeadline // and when as much time has gone by on the wall clock
	coolDown     // a slot rests after its window
	// a quarantine lasts as long as the longest TTL that is allowed, whatever TTL is known of or
	// asked for.
	longestTTL
	// a pool that is new gets the shape that it is configured to have.
	shapePinned
	// an identity gets its worker id again only when its last window has ended.
	identityEnded
	// the end of the last stamp of a command is where its clock has come to, and a unit.
	clockUsed
	restartDoubted // a pool that another incarnation has written may have lost something
	clocksAgree    // assumption: servers' clocks are within S/2 of one time base
	alike          // assumption: clients are configured with one longest TTL
	declaredUnused // assumption: a pool is declared new only if it is not in use
	handsOff       // assumption: no pool is edited by hand
	// another server goes on only under the id that came before its own.
	promotionNoted
	promotionRead    // and only if it has read from a master in this run
	promotionWhole   // and has a backlog
	promotionCovered // and where every server that can become master confirms
	coverKept        // what all have confirmed once, all confirm from then on
	byAddress        // a replica that has come does not confirm in the place of one that is away
	renamedRun       // a server without an id before has renamed its history only in the same run
	renamedInput     // and only if it has read from no master since
	diskAsked        // a restart counts as whole only where all is on disk
	movedFromPeer    // a pool has moved only from a master that lives under the noted id
	usableID         // a server whose id never changes is refused
	askedEachTime    // the id is asked for with each call, not with each connection
	restoredTold     // assumption: who starts a server from a copy says so
	// assumption: a pool that moves is at all servers of its new part before one dies
	moveKept
	// assumption: no replica that has started again is promoted while it reads what it has missed.
	caughtUp
	// a former master goes on under another id only if it has read from no master since.
	asideInput
	asideCovered // and where every server that can become master confirms
	// which replicas a server without a list has had, Redis keeps for processes to come.
	replicasKept
	restartKeeps // a master that has started from a file is not one that was promoted
	oneTakenOff  // of those that are not attached only one can be the one that was promoted
	eachBehind   // behind one address each replica has to confirm
	comeCounts   // a write does not count that has found a replica which was not known
	askedAfter   // nor one that such a one may have confirmed, which has come meanwhile
	// what is known of a server is asked for again before the next call if that comes late.
	askedWhenOld
	allListed    // a replica has to confirm that any sentinel lists
	mostAnswer   // more than half of the sentinels have to answer
	someRemember // assumption: not all that answer were started anew while a replica is away
	// assumption: a replica that comes has confirmed a write before it is away and promoted.
	comeFirst
	goneStay // assumption: replicas of which an operator says so are gone
	// a replica has to confirm that any master of a cluster lists, not its own alone.
	mastersAsked
	// a replica that is listed as one of the master before has to confirm.
	beforeKept
	mostMasters // more than half of the masters have to answer
	// assumption: a replica that may come back is not forgotten by all masters that answer.
	othersKnow
	rules
)

// class is a class of faults or of conditions, or several.
type class uint64

// The classes.
const (
	lag      class = 1 << iota // replicas fall behind by up to a TTL
	failover                   // the master dies, a replica is promoted
	// a replica restarts from its last file and is promoted before it is in step again.
	staleFailover
	twice        // two failovers in a row
	thereAndBack // A to B to A
	splitAlone   // the master is cut off and serves on
	splitWith    // the master is cut off together with a replica and serves on
	flush        // FLUSHALL
	deleteRecord // one record is deleted
	restartEmpty // the master restarts without data
	restartOld   // the master restarts from an older file
	declare      // the pool is declared new, again and again
	serverClocks // servers' clocks step
	clientClocks // clients' wall clocks are wrong by minutes and jump
	pauses       // clients pause, for longer than the TTL too
	suspends     // clients are suspended: their monotonic clock stands still
	messages     // replies are lost, requests are late or executed twice
	churn        // clients release and come back
	cooling      // the pool has a cool-down
	coarse       // a timestamp of an id stands for a long time
	twoTTLs      // half of the clients ask for another TTL
	// clients ask for no TTL, and half of them would give a new pool a shorter one than it had.
	defaultTTLs
	shapes // the pool has another shape than the default
	// processes are killed and begin again under their name, some while another of that name lives.
	twins
	restartWhole // the master restarts with all that it had
	// a fourth of the clients are commands: they stamp by the clock of a file, and what they have
	// stamped is not known.
	commands
	renames // the master calls its history otherwise, as when a copy of it is made
	copies  // the master is started from an older copy, and an operator says so
	moves   // the pool moves to another part of the cluster
	// half of the clients have nobody confirm what they write, or with even seeds all of them.
	fewerAcks
	// a replica is away, one that nobody lists attaches, the master dies, the first is promoted.
	standIns
	noID  // the server's replication id is the same for ever
	proxy // clients keep their connections, whatever server is after them
	// the master is told to follow another, and made master again, with or without having read a
	// part of that one's data, and with or without another master meanwhile.
	aside
	// processes restart, and know of replicas what Redis keeps; some replicas are cut off for long
	// and promoted as they are.
	forgets
	// the same with what sentinels list, some of which begin anew, or are away.
	sentinels
	natted    // servers do not know their address
	shared    // two replicas stand behind one address
	addresses // replicas change their address
	gone      // an operator says that replicas which are away are gone
	masters   // as sentinels, with what masters of a cluster list, and are told to forget
	classes
)

const (
	everyFault = classes - 1 - twoTTLs - fewerAcks - noID
	everyLoss  = failover | staleFailover | twice | thereAndBack | splits | flush | deleteRecord | restartEmpty | restartOld | restartWhole | declare | copies | moves | standIns | aside | forgets | sentinels | masters
	splits     = splitAlone | splitWith
	everyday   = pauses | messages | churn
)

var classNames = []string{
	"lag", "failover", "staleFailover", "twice", "thereAndBack", "splitAlone", "splitWith", "flush", "deleteRecord", "restartEmpty", "restartOld", "declare",
	"serverClocks", "clientClocks", "pauses", "suspends", "messages", "churn", "cooling", "coarse", "twoTTLs", "defaultTTLs", "shapes", "twins",
	"restartWhole", "commands", "renames", "copies", "moves", "fewerAcks", "standIns", "noID", "proxy", "aside",
	"forgets", "sentinels", "natted", "shared", "addresses", "gone",
	"masters",
}
