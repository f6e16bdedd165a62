package api

// TokenRequest is the body of POST /token; all of it is optional.
type TokenRequest struct {
	TTLMs *int64 `json:"ttl_ms"`
	Scope string `json:"scope"`
}

// TokenIssued answers POST /token.
type TokenIssued struct {
	Token     string `json:"token"`
	ExpiresAt Time   `json:"expires_at"`
	Scope     string `json:"scope"`
}

// State is the state of an operation.
type State string

// The states of an operation. StateInDoubt is a claim whose lease has lapsed with no answer
// recorded.
const (
	StateIssued    State = "issued"
	StateClaimed   State = "claimed"
	StateInDoubt   State = "in-doubt"
	StateRefused   State = "refused" // an operator has closed it: no request begins
	StateCompleted State = "completed"
)

// TokenStatus answers GET /token/{token}.
type TokenStatus struct {
	State      State  `json:"state"`
	ExpiresAt  Time   `json:"expires_at"`
	Attempts   int    `json:"attempts"`
	Fence      int64  `json:"fence"`
	Scope      string `json:"scope"`
	LeaseUntil Time   `json:"lease_until,omitzero"`
}

// ClaimRequest is the body of POST /token/{token}/claim.
type ClaimRequest struct {
	Fingerprint string `json:"fingerprint"`
	LeaseMs     *int64 `json:"lease_ms"`
	Policy      string `json:"policy"`
}

// OperationClaim is the body of POST /operation/claim.
type OperationClaim struct {
	Key   string `json:"key"` // the caller's own
	Scope string `json:"scope,omitempty"`
	// how long the record stays, from its answer on, or without one from the last claim
	RetentionMs *int64 `json:"retention_ms,omitempty"`

	ClaimRequest
}

// Claimed answers POST /token/{token}/claim and POST /operation/claim: a grant, or the answer to
// replay.
type Claimed struct {
	Outcome    string  `json:"outcome"`             // granted or replay
	Operation  string  `json:"operation,omitempty"` // that was claimed by the caller's own key
	Lease      string  `json:"lease,omitempty"`
	Fence      int64   `json:"fence,omitempty"`
	Attempt    int     `json:"attempt,omitempty"`
	LeaseUntil Time    `json:"lease_until,omitzero"`
	Response   *Answer `json:"response,omitempty"`
}

// Answer is a recorded answer: the body of POST /token/{token}/complete, and a part of Claimed.
type Answer struct {
	Status  int               `json:"status"`
	Headers map[string]string `json:"headers"`
	Body    []byte            `json:"body_base64"`
	// the body was too large to keep, and is not there
	NotKept bool `json:"body_not_kept,omitempty"`
}

// Operation is an operation as operators see it: it answers GET /operation/{operation}, and is a
// part of Operations. It holds no token and no key.
type Operation struct {
	Operation string `json:"operation"` // its name, which handlers get as well
	State     State  `json:"state"`
	Route     string `json:"route,omitempty"`
	Since     Time   `json:"since,omitzero"` // since when it is in doubt
	// of one in doubt: from its attempt's claim to the end of the lease
	RanForMs   *int64   `json:"ran_for_ms,omitempty"`
	Attempts   int      `json:"attempts"`
	Fence      int64    `json:"fence"`                // of the newest attempt, as all that follows
	RequestID  string   `json:"request_id,omitempty"` // under which the service's log has it
	Policy     string   `json:"policy,omitempty"`
	Began      Time     `json:"began,omitzero"`
	LeaseUntil Time     `json:"lease_until,omitzero"`
	ExpiresAt  Time     `json:"expires_at"`         // when the record goes
	Decision   Decision `json:"decision,omitempty"` // of an operator, the last one
}

// Decision is an operator's decision about an operation in doubt after checking its effect.
type Decision string

// The decisions of an operator.
const (
	// DecisionHappened means that it has had its effect: its answer is recorded, and every repeat
	// gets it.
	DecisionHappened Decision = "completed"
	// DecisionNotBegun means that it has had no effect: the next request may begin, with a larger
	// fence.
	DecisionNotBegun Decision = "not-begun"
	// DecisionRefused lets no request begin; repeats get an error that says that an operator has
	// closed it.
	DecisionRefused Decision = "refused"
)

// Operations answers GET /operation?state=in-doubt.
type Operations struct {
	Operations []Operation `json:"operations"`
	Next       string      `json:"next,omitempty"` // cursor of the next page
}

// Settlement is the body of POST /operation/{operation}/settle.
type Settlement struct {
	Outcome Decision `json:"outcome"`
	// of the answer, with completed, as what follows
	Status  int               `json:"status,omitempty"`
	Headers map[string]string `json:"headers,omitempty"`     //
	Body    []byte            `json:"body_base64,omitempty"` //
	Reason  string            `json:"reason,omitempty"`      // kept in the event feed and the log
}

// ResolveRequest is the body of POST /operation/{operation}/resolve; all of it is optional.
type ResolveRequest struct {
	LeaseMs *int64 `json:"lease_ms"` // 0, with Lease-Token: nothing was found out
}

// Resolving answers POST /operation/{operation}/resolve.
type Resolving struct {
	Lease      string `json:"lease"` // for Lease-Token of the settlement
	Fence      int64  `json:"fence"` // of the newest attempt: close it and smaller ones
	LeaseUntil Time   `json:"lease_until"`
	// how often somebody has begun to resolve it, this time included
	Asked int `json:"asked"`
}

// ExtendRequest is the body of POST /token/{token}/extend; all of it is optional.
type ExtendRequest struct {
	LeaseMs *int64 `json:"lease_ms"`
}

// Extended answers POST /token/{token}/extend.
type Extended struct {
	LeaseUntil Time `json:"lease_until"`
}
