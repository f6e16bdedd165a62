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
	promotionNamed  // and where the word, which all places have confirmed, names its run
	noPromotion     // in a cluster none does
	epochNoted      // nor a server in another epoch
	coverKept       // what all have confirmed once, all confirm from then on
	byAddress       // each place confirms by itself, and replicas are not counted
	placesKept      // the places of the word have to confirm, whatever is listed
	placesStay      // also after a loss
	masterOnly      // a server that is no master is refused
	confirmedOffset // all that the server has is waited for, not what one call has written
	renamedRun      // a server without an id before has renamed its history only in the same run
	renamedInput    // and only if it has read from no master since
	diskAsked       // a restart counts as whole only where all is on disk
	usableID        // a server whose id never changes is refused
	askedEachTime   // the id is asked for with each call, not with each connection
	restoredTold    // assumption: who starts a server from a copy, or resumes a snapshot, says so
	allListed       // a replica has to confirm that any sentinel lists
	mostAnswer      // more than half of the sentinels have to answer
	listWhole       // assumption: the list that the first call sees is whole
	ownPlace        // assumption: a server's place is given to no other one while it lives
	goneStay        // assumption: replicas of which an operator says so are gone
	// assumption: no replica follows another one and is promoted.
	followMaster
	attachedNoted // a replica that is found attached at a call has to confirm, and is noted
	askedWhenOld  // what was known of a server for long is asked for again before a call
	toldStays     // a place that is known from a word alone is noted in no other word
	refusedNotes  // a call that is refused notes the replicas that are attached, too
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
	tools // a client confirms the stream while a replica is cut off, which is promoted
	noID  // the server's replication id is the same for ever
	proxy // clients keep their connections, whatever server is after them
	// the master is told to follow another, and made master again, with or without having read a
	// part of that one's data, and with or without another master meanwhile.
	aside
	cuts      // replicas are cut off for long, and promoted as they are
	sentinels // sentinels begin anew, or are away
	addresses // replicas change their address
	gone      // an operator says that a replica which is away is gone
	clusters  // the servers are one of two masters of a cluster, with replicas
	// in a cluster a replica starts from an older file while its master is gone, and becomes master
	// under the id in that file.
	idStays
	alone    // there is one server, and nobody confirms
	writable // clients ask replicas, which take writes
	returns  // in a cluster the pool moves, is rolled back there, and comes back before it is used
	// the master's machine is resumed from a snapshot of its memory, and an operator says so.
	snapshots
	// replicas that sentinels have forgotten, or not heard of yet, are cut off and promoted.
	sights
	chains // a replica copies a lagging one, and is promoted
	// clients claim tokens as well, which no word is noted beside: what Redis loses is lost.
	tokens
	classes
)

const (
	everyFault = classes - 1 - twoTTLs - fewerAcks - noID - tokens
	// Promotions are those that lose nothing.
	promotions = lag | failover | twice | thereAndBack | splits | renames | tools | cuts | sentinels | addresses | gone | sights
	everyLoss  = failover | staleFailover | twice | thereAndBack | splits | flush | deleteRecord | restartEmpty | restartOld | restartWhole | declare | copies | moves | tools | aside | cuts | sentinels | addresses | gone | idStays | writable | returns | snapshots | sights | chains
	splits     = splitAlone | splitWith
	everyday   = pauses | messages | churn
)

var classNames = []string{
	"lag", "failover", "staleFailover", "twice", "thereAndBack", "splitAlone", "splitWith", "flush", "deleteRecord", "restartEmpty", "restartOld", "declare",
	"serverClocks", "clientClocks", "pauses", "suspends", "messages", "churn", "cooling", "coarse", "twoTTLs", "defaultTTLs", "shapes", "twins",
	"restartWhole", "commands", "renames", "copies", "moves", "fewerAcks", "tools", "noID", "proxy", "aside",
	"cuts", "sentinels", "addresses", "gone", "clusters", "idStays", "alone", "writable", "returns", "snapshots", "sights", "chains", "tokens",
}
