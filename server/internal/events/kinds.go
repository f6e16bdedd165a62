package events

// The kinds of events that are sent one by one.
const (
	CounterSet     = "counter.set"
	CounterRemoved = "counter.removed"
	// CounterInDoubt is a refusal: the counter has gone back, or everything was lost a moment ago.
	CounterInDoubt = "counter.in-doubt"

	LimitReset    = "limit.reset"
	LimitReturned = "limit.returned" // an admin has given back to it

	SegmentSet = "segment.set"

	PoolCreated     = "pool.created"
	PoolQuarantined = "pool.quarantined"
	PoolExhausted   = "pool.exhausted"

	WorkerGranted  = "worker.granted"
	WorkerReleased = "worker.released"
	WorkerLost     = "worker.lost" // a caller's lease is not the current one, or no longer

	LockGranted     = "lock.granted"
	LockReleased    = "lock.released"
	LockLost        = "lock.lost" // as with workers
	LockBroken      = "lock.broken"
	LockQuarantined = "lock.quarantined"

	// OperationInDoubt: a caller came again, and the first attempt has ended without an answer.
	OperationInDoubt   = "operation.in-doubt"
	OperationSettled   = "operation.settled"   // an operator has ended the doubt about it
	OperationForgotten = "operation.forgotten" // an operator has had its answer forgotten

	// RequestRefused: the caller may not, or not so often; of an admin's also other reasons.
	RequestRefused = "request.refused"

	StoreChanged = "store.changed" // another incarnation: confirmed writes may be missing
	// StoreRestored: an operator has said that Redis was started from a copy.
	StoreRestored = "store.restored"
	// ReplicasGone: an operator has said that replicas are gone for good.
	ReplicasGone = "store.replicas-gone"
)

// The kinds that are only counted: of thousands in a second a single one is of no use to a person.
const (
	TokenIssued        = "token.issued"
	OperationClaimed   = "operation.claimed"
	OperationReplayed  = "operation.replayed"
	OperationCompleted = "operation.completed"
	OperationReleased  = "operation.released"
)

var (
	sent = []string{
		CounterSet, CounterRemoved, CounterInDoubt, LimitReset, LimitReturned, SegmentSet,
		PoolCreated, PoolQuarantined, PoolExhausted, WorkerGranted, WorkerReleased, WorkerLost,
		LockGranted, LockReleased, LockLost, LockBroken, LockQuarantined,
		OperationInDoubt, OperationSettled, OperationForgotten, RequestRefused, StoreChanged, StoreRestored, ReplicasGone,
	}
	counted = []string{TokenIssued, OperationClaimed, OperationReplayed, OperationCompleted, OperationReleased}
)
