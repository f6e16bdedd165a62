package api

// LockRequest is the body of POST /lock/{name}; all of it is optional.
type LockRequest struct {
	TTLMs  *int64 `json:"ttl_ms"`
	WaitMs *int64 `json:"wait_ms"`
	Owner  string `json:"owner"` // for people
	Mode   string `json:"mode"`  // exclusive, shared or permits
	// how many there are: with more than one, as many may hold at once
	Permits *int64 `json:"permits"`
	Take    *int64 `json:"take"` // how many of them this request takes
}

// LockGranted answers POST /lock/{name}.
type LockGranted struct {
	Name         string `json:"name"`
	Lease        string `json:"lease"` // the secret for Lease-Token
	Fence        int64  `json:"fence"`
	Since        Time   `json:"since"`
	ExpiresAt    Time   `json:"expires_at"`
	TTLMs        int64  `json:"ttl_ms"`
	RenewEveryMs int64  `json:"renew_every_ms"`
	ServerTime   Time   `json:"server_time"`
}

// LockRenewal is the body of PUT /lock/{name}; all of it is optional.
type LockRenewal struct {
	TTLMs *int64 `json:"ttl_ms"`
}

// LockRenewed answers PUT /lock/{name}.
type LockRenewed struct {
	Name         string `json:"name"`
	ExpiresAt    Time   `json:"expires_at"`
	TTLMs        int64  `json:"ttl_ms"`
	RenewEveryMs int64  `json:"renew_every_ms"`
	ServerTime   Time   `json:"server_time"`
}

// LockBroken answers DELETE /lock/{name}?force={fence}.
type LockBroken struct {
	Name  string `json:"name"`
	Fence int64  `json:"fence"` // larger than that of the holder who was shut out
}

// Lock is the holders and waiters of a lock: it answers GET /lock/{name}, and is a part of Locks.
type Lock struct {
	Name string `json:"name"`
	// exclusive, shared or permits; none if it is free
	Mode    string       `json:"mode,omitempty"`
	Permits int          `json:"permits,omitempty"` // how many there are, with mode permits
	Fence   int64        `json:"fence,omitempty"`   // of the last grant that is remembered
	Holders []LockHolder `json:"holders"`           // the one with the smallest fence first
	// how many there are beside these, where there are more than a hundred, in Locks more than ten
	MoreHolders int `json:"more_holders,omitempty"`
	Waiting     int `json:"waiting"` // how many wait
	// the first hundred of them, in order; not in Locks
	Queue      []LockWaiter `json:"queue,omitempty"`
	ServerTime Time         `json:"server_time"`
}

// LockHolder is one holder of a lock. A plain client of redislock has no fence, no owner and no
// since; without an until it holds for ever.
type LockHolder struct {
	Owner string `json:"owner,omitempty"`
	Fence int64  `json:"fence,omitempty"`
	Since Time   `json:"since,omitzero"`
	Until Time   `json:"until,omitzero"` // unless it is renewed
	Take  int    `json:"take,omitempty"` // permits, with mode permits
}

// LockWaiter is one waiter of a lock.
type LockWaiter struct {
	Owner string `json:"owner,omitempty"`
	Mode  string `json:"mode"`
	Take  int    `json:"take,omitempty"` // permits, with mode permits
	Since Time   `json:"since"`
}

// Locks answers GET /lock: those that are held.
type Locks struct {
	Locks []Lock `json:"locks"`
	Next  string `json:"next,omitempty"` // cursor of the next page
}
