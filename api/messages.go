package api

import (
	"fmt"
	"time"
)

// Bodies of requests and answers. Pointers may be left out; durations are ms, times RFC 3339.

// TokenRequest is the body of POST /token; all of it is optional.
type TokenRequest struct {
	TTLMs *int64 `json:"ttl_ms"`
	Scope string `json:"scope"`
}

// TokenIssued answers POST /token.
type TokenIssued struct {
	Token     string    `json:"token"`
	ExpiresAt time.Time `json:"expires_at"`
	Scope     string    `json:"scope"`
}

// State is the state of an operation.
type State string

// The states of an operation. StateInDoubt is a claim whose lease has lapsed with no answer
// recorded.
const (
	StateIssued    State = "issued"
	StateClaimed   State = "claimed"
	StateInDoubt   State = "in-doubt"
	StateCompleted State = "completed"
)

// TokenStatus answers GET /token/{token}.
type TokenStatus struct {
	State      State     `json:"state"`
	ExpiresAt  time.Time `json:"expires_at"`
	Attempts   int       `json:"attempts"`
	Fence      int64     `json:"fence"`
	Scope      string    `json:"scope"`
	LeaseUntil time.Time `json:"lease_until,omitzero"`
}

// ClaimRequest is the body of POST /token/{token}/claim.
type ClaimRequest struct {
	Fingerprint string `json:"fingerprint"`
	LeaseMs     *int64 `json:"lease_ms"`
	Policy      string `json:"policy"`
	Owner       string `json:"owner,omitempty"` // a secret; "" = the service makes one
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
	Outcome    string    `json:"outcome"`             // granted or replay
	Operation  string    `json:"operation,omitempty"` // that was claimed by the caller's own key
	Lease      string    `json:"lease,omitempty"`
	Fence      int64     `json:"fence,omitempty"`
	Attempt    int       `json:"attempt,omitempty"`
	LeaseUntil time.Time `json:"lease_until,omitzero"`
	Response   *Answer   `json:"response,omitempty"`
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
	Operation string    `json:"operation"` // its name, which handlers get as well
	State     State     `json:"state"`
	Route     string    `json:"route,omitempty"`
	Since     time.Time `json:"since,omitzero"` // since when it is in doubt
	// of one in doubt: from its attempt's claim to the end of the lease
	RanForMs   *int64    `json:"ran_for_ms,omitempty"`
	Attempts   int       `json:"attempts"`
	Fence      int64     `json:"fence"`                // of the newest attempt, as all that follows
	RequestID  string    `json:"request_id,omitempty"` // under which the service's log has it
	Policy     string    `json:"policy,omitempty"`
	Began      time.Time `json:"began,omitzero"`
	LeaseUntil time.Time `json:"lease_until,omitzero"`
	ExpiresAt  time.Time `json:"expires_at"`         // when the record goes
	Decision   Decision  `json:"decision,omitempty"` // of an operator, the last one
}

// Decision is an operator's decision about an operation in doubt after checking its effect.
type Decision string

// The decisions of an operator.
const (
	// Happened means that it has had its effect: its answer is recorded, and every repeat gets it.
	Happened Decision = "completed"
	// NotBegun means that it has had no effect: the next request may begin, with a larger fence.
	NotBegun Decision = "not-begun"
	// Refused lets no request begin; repeats get an error that says that an operator has closed it.
	Refused Decision = "refused"
)

// Operations answers GET /token?state=in-doubt.
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

// ExtendRequest is the body of POST /token/{token}/extend; all of it is optional.
type ExtendRequest struct {
	LeaseMs *int64 `json:"lease_ms"`
}

// Extended answers POST /token/{token}/extend.
type Extended struct {
	LeaseUntil time.Time `json:"lease_until"`
}

// Incremented answers /incr/{key}: the caller owns First to Value, both included. With a template
// the one value is written as Number, and more as Numbers, rising.
type Incremented struct {
	Key     string   `json:"key"` // of the counter: with a calendar it has the date in it
	Value   int64    `json:"value"`
	First   int64    `json:"first"`
	Number  string   `json:"number,omitempty"`
	Numbers []string `json:"numbers,omitempty"`
}

// Counter answers GET /counter/{key}.
type Counter struct {
	Key   string `json:"key"`
	Value int64  `json:"value"`
}

// CounterRequest is the body of PUT /counter/{key}.
type CounterRequest struct {
	Value *int64 `json:"value"`            // required
	TTLMs *int64 `json:"ttl_ms,omitempty"` // 100 ms to 10 years; none = for ever
}

// Counters answers GET /counter.
type Counters struct {
	Counters []ListedCounter `json:"counters"`
	// the cursor of the next page; none if this is the last
	Next string `json:"next,omitempty"`
}

// ListedCounter is one of a list.
type ListedCounter struct {
	Key   string `json:"key"`
	Value *int64 `json:"value"`           // null where it is not an integer
	Error Code   `json:"error,omitempty"` // NotAnInteger
}

// WorkerRequest is the body of POST /worker/{pool}, all optional; PUT takes it without an identity.
type WorkerRequest struct {
	Identity string `json:"identity"`
	PoolRequest
}

// PoolRequest is the body of PUT /worker/{pool}; all of it is optional.
type PoolRequest struct {
	TTLMs      *int64     `json:"ttl_ms"`
	Layout     *string    `json:"layout"`
	Epoch      *time.Time `json:"epoch"`
	Datacenter *int       `json:"datacenter"`
}

// WorkerLease answers POST /worker/{pool}.
type WorkerLease struct {
	WorkerID     int       `json:"worker_id"`
	Lease        string    `json:"lease"`
	Fence        int64     `json:"fence"`
	NotBefore    time.Time `json:"not_before"`
	NotAfter     time.Time `json:"not_after"`
	TTLMs        int64     `json:"ttl_ms"`
	RenewEveryMs int64     `json:"renew_every_ms"`
	Layout       string    `json:"layout"`
	Epoch        time.Time `json:"epoch"`
	Datacenter   int       `json:"datacenter"`
	Identity     string    `json:"identity,omitempty"`
	ServerTime   time.Time `json:"server_time"`
}

// RenewRequest is the body of PUT /worker/{pool}/{worker_id}; all of it is optional. The fields
// after ttl_ms are the holder's proof, as last granted or renewed: with all of them, a lease that
// Redis has lost is recorded anew while its window is open.
type RenewRequest struct {
	TTLMs      *int64     `json:"ttl_ms"`
	NotAfter   *time.Time `json:"not_after"`
	Fence      int64      `json:"fence"`
	Identity   string     `json:"identity"`
	Layout     string     `json:"layout"`
	Epoch      *time.Time `json:"epoch"`
	Datacenter int        `json:"datacenter"`
}

// WorkerRenewed answers PUT /worker/{pool}/{worker_id}.
type WorkerRenewed struct {
	WorkerID     int       `json:"worker_id"`
	NotAfter     time.Time `json:"not_after"`
	TTLMs        int64     `json:"ttl_ms"`
	RenewEveryMs int64     `json:"renew_every_ms"`
	ServerTime   time.Time `json:"server_time"`
}

// WorkerPool is a pool's state: it answers PUT /worker/{pool}, within WorkerRing and WorkerPools.
type WorkerPool struct {
	Pool       string    `json:"pool"`
	Layout     string    `json:"layout"`
	Epoch      time.Time `json:"epoch"`
	Datacenter int       `json:"datacenter"`
	Size       int       `json:"size"` // slots of the ring
	Used       int       `json:"used"` // slots that were leased at least once
	TTLMs      int64     `json:"ttl_ms"`
	// when its layout has no timestamps left; none: beyond the year 9999
	EndsAt time.Time `json:"ends_at,omitzero"`
	// nothing is granted for that long, since state may have been lost
	QuarantinedMs int64 `json:"quarantined_ms,omitempty"`
}

// WorkerPools answers GET /worker.
type WorkerPools struct {
	Pools []WorkerPool `json:"pools"`
	Next  string       `json:"next,omitempty"` // cursor of the next page
}

// WorkerRing answers GET /worker/{pool}: a page of the ring.
type WorkerRing struct {
	WorkerPool
	ServerTime time.Time    `json:"server_time"`
	Slots      []WorkerSlot `json:"slots"`
	Next       *int         `json:"next,omitempty"` // where the next page begins
}

// WorkerSlot is one worker id of a ring.
type WorkerSlot struct {
	WorkerID  int       `json:"worker_id"`
	State     string    `json:"state"`            // held, cooling or free
	Holder    string    `json:"holder,omitempty"` // as the last holder named itself
	Fence     int64     `json:"fence,omitempty"`  // of the last lease; what follows is its window
	NotBefore time.Time `json:"not_before,omitzero"`
	NotAfter  time.Time `json:"not_after,omitzero"`
}

// Snowflakes answers GET /id/snowflake and GET /id/snowflake/{pool}.
type Snowflakes struct {
	Pool     string   `json:"pool"`
	WorkerID int      `json:"worker_id"`    // that of all these ids
	ID       string   `json:"id,omitempty"` // the one id of a request without n
	IDs      []string `json:"ids"`          // rising, in the format that was asked for
}

// SegmentIDs answers GET /id/segment/{tag}.
type SegmentIDs struct {
	Tag string   `json:"tag"`
	Key string   `json:"key,omitempty"` // with which they are opaque
	ID  string   `json:"id,omitempty"`  // the one id of a request without n
	IDs []string `json:"ids"`           // in the format that was asked for
}

// Restored answers POST /store/restored.
type Restored struct {
	Marked int `json:"marked"` // markers and pools whose state counts as possibly lost
}

// SegmentRequest asks for a tag to go on at an id: PUT /id/segment/{tag}.
type SegmentRequest struct {
	Next string `json:"next"` // required: the first id that may be handed out, 1 to 2^63 − 2
}

// Segment answers PUT /id/segment/{tag}.
type Segment struct {
	Tag  string `json:"tag"`
	Next string `json:"next"`
}

// UUIDs answers GET /id/uuid.
type UUIDs struct {
	Version int      `json:"version"`
	ID      string   `json:"id,omitempty"` // the one id of a request without n
	IDs     []string `json:"ids"`
}

// TextIDs answers GET /id/ulid and GET /id/typeid.
type TextIDs struct {
	Prefix *string  `json:"prefix,omitempty"` // of TypeIDs alone, where it may be empty
	ID     string   `json:"id,omitempty"`     // the one id of a request without n
	IDs    []string `json:"ids"`
}

// DecodedText answers GET /id/decode/{id}?format=ulid or typeid.
type DecodedText struct {
	ID     string    `json:"id"`
	Prefix string    `json:"prefix,omitempty"` // of a TypeID that has one
	UUID   string    `json:"uuid"`             // the same 128 bits
	Time   time.Time `json:"time,omitzero"`    // none for a TypeID whose UUID has none
}

// Text is the same as lines: Unix milliseconds, -1 for none, the UUID, and the prefix.
func (d DecodedText) Text() string {
	ms := int64(-1)
	if !d.Time.IsZero() {
		ms = d.Time.UnixMilli()
	}
	return fmt.Sprintf("%d\n%s\n%s\n", ms, d.UUID, d.Prefix)
}

// DecodedOpaque answers GET /id/decode/{id}?format=opaque.
type DecodedOpaque struct {
	ID  string `json:"id"`
	Tag string `json:"tag"`
	Key string `json:"key"` // with which it was decoded; the number does not tell
}

// DecodedID answers GET /id/decode/{id}.
type DecodedID struct {
	ID         string    `json:"id"`   // in decimal
	Time       time.Time `json:"time"` // when its unit of time begins
	WorkerID   int       `json:"worker_id"`
	Datacenter int       `json:"datacenter"`
	Sequence   int64     `json:"sequence"`
	Layout     string    `json:"layout"` // with which it was decoded; the id does not tell
	Epoch      time.Time `json:"epoch"`
}

// PaymentRequest is the body of the demo's POST /payments.
type PaymentRequest struct {
	Amount   int64  `json:"amount"` // in the currency's smallest unit
	Currency string `json:"currency"`
	To       string `json:"to"`
}

// Payment is a charge in the demo's ledger.
type Payment struct {
	ID        string    `json:"id"`
	Amount    int64     `json:"amount"`
	Currency  string    `json:"currency"`
	To        string    `json:"to"`
	Fence     int64     `json:"fence"`
	ChargedAt time.Time `json:"charged_at"`
}

// Ledger answers GET /payments.
type Ledger struct {
	// charges in the ledger; the newest of them follow, oldest first
	Total    int       `json:"total"`
	Payments []Payment `json:"payments"`
}

// Readiness answers GET /readyz.
type Readiness struct {
	Ready       bool   `json:"ready"`
	Store       string `json:"store"` // embedded, standalone, sentinel or cluster
	Ack         int    `json:"ack"`
	Incarnation string `json:"incarnation,omitempty"` // for those who may read
	// what loses nothing that was confirmed, for those who may read
	Continues *Continues `json:"continues,omitempty"`
	// why it is not ready; with figures for callers that may read
	Reason string `json:"reason,omitempty"`

	// WorkerIDs counts the worker ids that this server stamps with itself. One that is waited for
	// makes the server unready only where its pool is configured and another process has one.
	WorkerIDs *WorkerCount `json:"worker_ids,omitempty"`
	// Workers lists them for callers that may read, as far as their names go.
	Workers []StampingWorker `json:"workers,omitempty"`
}

// Continues reports what loses nothing that was confirmed, and so costs nothing.
type Continues struct {
	Failover bool `json:"failover"` // every replica that can become master has each write
	Restart  bool `json:"restart"`  // every write is on disk before it counts
}

// WorkerCount is how many worker ids a server stamps with, and would stamp with.
type WorkerCount struct {
	Held    int `json:"held"`
	Waiting int `json:"waiting"`
}

// StampingWorker is the state of this server's worker id of one pool.
type StampingWorker struct {
	Pool  string `json:"pool"`
	State string `json:"state"` // held, or waiting: nothing of the pool is stamped now
	// Configured is set if this server stamps ids of the pool from its start on.
	Configured bool      `json:"configured,omitempty"`
	WorkerID   *int      `json:"worker_id,omitempty"` // if it is held
	NotAfter   time.Time `json:"not_after,omitzero"`  // end of its window, if it is held
	Reason     string    `json:"reason,omitempty"`    // why it is not
}

// Policies answers GET /idempotency-policy.
type Policies struct {
	Routes []RoutePolicy `json:"routes"`
}

// RoutePolicy is a guarded route as clients see it.
type RoutePolicy struct {
	Route   string   `json:"route"`
	Headers []string `json:"headers"` // one of them belongs in the request
	// where the payload has the key of a request without one of them, as a JSON Pointer
	KeyFromBody string `json:"key_from_body,omitempty"`
	// what distinguishes a key: the same key elsewhere is another operation
	UniqueBy    []string `json:"unique_by"`
	Required    bool     `json:"required"`
	Policy      string   `json:"policy"`
	LeaseMs     int64    `json:"lease_ms"`
	RetentionMs int64    `json:"retention_ms"`
	// what has to be the same for two requests to be the same
	Fingerprint []string `json:"fingerprint"`
	// statuses whose answers are kept; none = all but 307, 308, 401, 403, 407, 408, 421, 425 and
	// 429
	Keep      []string `json:"keep,omitempty"`
	MaxBody   int64    `json:"max_body_bytes"`
	MaxWaitMs int64    `json:"max_wait_ms"` // how long a request with Prefer: wait=n may wait
	// tokens that were issued for another scope are refused
	Scope string `json:"scope,omitempty"`
}
