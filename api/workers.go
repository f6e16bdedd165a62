package api

// WorkerRequest is the body of POST /worker/{pool}, all optional; PUT takes it without an identity.
type WorkerRequest struct {
	Identity string `json:"identity"`
	PoolRequest
}

// PoolRequest is the body of PUT /worker/{pool}; all of it is optional.
type PoolRequest struct {
	TTLMs      *int64  `json:"ttl_ms"`
	Layout     *string `json:"layout"`
	Epoch      *Time   `json:"epoch"`
	Datacenter *int    `json:"datacenter"`
}

// WorkerLease answers POST /worker/{pool}.
type WorkerLease struct {
	WorkerID     int    `json:"worker_id"`
	Lease        string `json:"lease"`
	Fence        int64  `json:"fence"`
	NotBefore    Time   `json:"not_before"`
	NotAfter     Time   `json:"not_after"`
	TTLMs        int64  `json:"ttl_ms"`
	RenewEveryMs int64  `json:"renew_every_ms"`
	Layout       string `json:"layout"`
	Epoch        Time   `json:"epoch"`
	Datacenter   int    `json:"datacenter"`
	Identity     string `json:"identity,omitempty"`
	ServerTime   Time   `json:"server_time"`
}

// RenewRequest is the body of PUT /worker/{pool}/{worker_id}; all of it is optional. The fields
// after ttl_ms are the holder's proof, as last granted or renewed: with all of them, a lease that
// Redis has lost is recorded anew while its window is open.
type RenewRequest struct {
	TTLMs      *int64 `json:"ttl_ms"`
	NotAfter   *Time  `json:"not_after"`
	Fence      int64  `json:"fence"`
	Identity   string `json:"identity"`
	Layout     string `json:"layout"`
	Epoch      *Time  `json:"epoch"`
	Datacenter int    `json:"datacenter"`
}

// WorkerRenewed answers PUT /worker/{pool}/{worker_id}.
type WorkerRenewed struct {
	WorkerID     int   `json:"worker_id"`
	NotAfter     Time  `json:"not_after"`
	TTLMs        int64 `json:"ttl_ms"`
	RenewEveryMs int64 `json:"renew_every_ms"`
	ServerTime   Time  `json:"server_time"`
}

// WorkerPool is a pool's state: it answers PUT /worker/{pool}, within WorkerRing and WorkerPools.
type WorkerPool struct {
	Pool       string `json:"pool"`
	Layout     string `json:"layout"`
	Epoch      Time   `json:"epoch"`
	Datacenter int    `json:"datacenter"`
	Size       int    `json:"size"` // slots of the ring
	Used       int    `json:"used"` // slots that were leased at least once
	Held       int    `json:"held"` // slots whose lease is open
	TTLMs      int64  `json:"ttl_ms"`
	// when its layout has no timestamps left; none: beyond the year 9999
	EndsAt Time `json:"ends_at,omitzero"`
	// nothing is granted for that long, since state may have been lost
	QuarantinedMs int64 `json:"quarantined_ms,omitempty"`
	// that time begins only when somebody asks for a worker id
	Unasked bool   `json:"unasked,omitempty"`
	Reason  string `json:"reason,omitempty"` // of the quarantine, for people
}

// WorkerPools answers GET /worker.
type WorkerPools struct {
	Pools []WorkerPool `json:"pools"`
	// pools on the page that wait for their first grant, and have no ring yet
	Waiting []WaitingPool `json:"waiting,omitempty"`
	Next    string        `json:"next,omitempty"` // cursor of the next page
}

// WaitingPool is a part of WorkerPools.
type WaitingPool struct {
	Pool   string `json:"pool"`
	WaitMs int64  `json:"wait_ms"` // until it grants by itself
	New    bool   `json:"new"`     // this Redis knows nothing of it, which shows no loss
	Reason string `json:"reason"`  // for people, with the way out
}

// WorkerRing answers GET /worker/{pool}: a page of the ring.
type WorkerRing struct {
	WorkerPool
	ServerTime Time         `json:"server_time"`
	Slots      []WorkerSlot `json:"slots"`
	Next       *int         `json:"next,omitempty"` // where the next page begins
}

// WorkerSlot is one worker id of a ring.
type WorkerSlot struct {
	WorkerID  int    `json:"worker_id"`
	State     string `json:"state"`            // held, cooling or free
	Holder    string `json:"holder,omitempty"` // as the last holder named itself
	Fence     int64  `json:"fence,omitempty"`  // of the last lease; what follows is its window
	NotBefore Time   `json:"not_before,omitzero"`
	NotAfter  Time   `json:"not_after,omitzero"`
}
