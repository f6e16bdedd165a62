package api

// PaymentRequest is the body of the demo's POST /payments.
type PaymentRequest struct {
	Amount   int64  `json:"amount"` // in the currency's smallest unit
	Currency string `json:"currency"`
	To       string `json:"to"`
}

// Payment is a charge in the demo's ledger.
type Payment struct {
	ID        string `json:"id"`
	Amount    int64  `json:"amount"`
	Currency  string `json:"currency"`
	To        string `json:"to"`
	Fence     int64  `json:"fence"`
	ChargedAt Time   `json:"charged_at"`
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
	// where the store is that does not work, and when this server first saw that; for those who may
	// read
	Address string `json:"address,omitempty"`
	Since   Time   `json:"since,omitzero"`

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
	Configured bool   `json:"configured,omitempty"`
	WorkerID   *int   `json:"worker_id,omitempty"` // if it is held
	NotAfter   Time   `json:"not_after,omitzero"`  // end of its window, if it is held
	Reason     string `json:"reason,omitempty"`    // why it is not
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
	KeyFromBody []string `json:"key_from_body,omitempty"`
	// what distinguishes a key: the same key elsewhere is another operation
	UniqueBy []string `json:"unique_by"`
	// the routes on which a key is one operation; "" = this one alone
	UniqueOver  string `json:"unique_over,omitempty"`
	Required    bool   `json:"required"`
	Policy      string `json:"policy"`
	LeaseMs     int64  `json:"lease_ms"`
	RetentionMs int64  `json:"retention_ms"`
	// what has to be the same for two requests to be the same
	Fingerprint []string `json:"fingerprint"`
	// statuses whose answers are kept; none = all that the next two do not list
	Keep      []string `json:"keep,omitempty"`
	Frees     []string `json:"frees,omitempty"`  // statuses after which the key is free again
	Doubts    []string `json:"doubts,omitempty"` // statuses that leave an operation in doubt
	MaxBody   int64    `json:"max_body_bytes"`
	MaxWaitMs int64    `json:"max_wait_ms"` // how long a request with Prefer: wait=n may wait
	// tokens that were issued for another scope are refused
	Scope string `json:"scope,omitempty"`
}
