package client

import "github.com/coatcheck/coatcheck/api"

// The service's answers, with the fields that openapi.yaml gives them.
type (
	// ListedCounter is a counter in the list of [Client.Counters].
	ListedCounter = api.ListedCounter
	// LockState is a lock with its holders and waiters: see [Client.Lock] and [Client.Locks].
	LockState = api.Lock
	// LockHolder is a holder of a lock in a [LockState].
	LockHolder = api.LockHolder
	// LockWaiter is a waiter for a lock in a [LockState].
	LockWaiter = api.LockWaiter
	// Operation is an operation as an operator sees it: see [Client.Operation], [Client.InDoubt].
	Operation = api.Operation
	// TokenStatus is the state of a token: see [Client.Status].
	TokenStatus = api.TokenStatus
	// WorkerPool is the state of a pool of worker ids: see [Client.Pools].
	WorkerPool = api.WorkerPool
	// WorkerRing is a pool with a page of its slots: see [Client.Ring].
	WorkerRing = api.WorkerRing
	// WorkerSlot is a slot of a [WorkerRing].
	WorkerSlot = api.WorkerSlot
	// WaitingPool is a pool that grants nothing yet: see [Client.WaitingPools].
	WaitingPool = api.WaitingPool
)

// Time is a time in an answer. It has the methods of [time.Time].
type Time = api.Time

// ProblemCode names the kind of a problem, such as lock-held.
type ProblemCode = api.Code

// State is the state of an operation.
type State = api.State

// The states of an operation. StateInDoubt: the lease of a claim has ended, and no answer was
// recorded. StateRefused: an operator has closed it, and no request begins.
const (
	StateIssued    = api.StateIssued
	StateClaimed   = api.StateClaimed
	StateInDoubt   = api.StateInDoubt
	StateRefused   = api.StateRefused
	StateCompleted = api.StateCompleted
)

// Decision says what became of an operation in doubt.
type Decision = api.Decision

// The decisions about an operation in doubt.
const (
	// DecisionHappened: it had its effect. Its answer is recorded, and every repeat gets it.
	DecisionHappened = api.DecisionHappened
	// DecisionNotBegun: it had no effect. The next request may begin, with a larger fence.
	DecisionNotBegun = api.DecisionNotBegun
	// DecisionRefused: no request begins. Repeats get an error that says that an operator has
	// closed the operation. Only an operator decides so, no [Resolver].
	DecisionRefused = api.DecisionRefused
)
