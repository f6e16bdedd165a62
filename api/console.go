package api

// Event is something that happened in one server process: a message of GET /events, no secret.
type Event struct {
	At       Time   `json:"at"`                  // by that process's clock
	Kind     string `json:"kind"`                // such as lock.granted
	Name     string `json:"name,omitempty"`      // of the counter, pool or lock
	WorkerID *int   `json:"worker_id,omitempty"` // of workers
	// of grants, and of a lock that was taken away by force
	Fence  int64  `json:"fence,omitempty"`
	Holder string `json:"holder,omitempty"` // as who was granted it named itself
	Value  *int64 `json:"value,omitempty"`  // what a counter was set to

	Operation string `json:"operation,omitempty"` // that was settled, by its name
	Outcome   string `json:"outcome,omitempty"`   // as which it was settled
	// the principal that settled it; none if access is not controlled
	By string `json:"by,omitempty"`
	// as that principal gave it, or why something is refused
	Reason string `json:"reason,omitempty"`
	// a pool that this Redis knows nothing of, which shows no loss
	New bool `json:"new,omitempty"`

	EventBy // for those of role admin who may touch all names
}

// EventBy is the caller of an event's request, and the outcome. It holds no secret.
type EventBy struct {
	Principal string `json:"principal,omitempty"`
	// also of one that was shown with a wrong secret
	KeyID string `json:"key_id,omitempty"`
	// a name in the client's certificate, which was verified
	Certificate string `json:"certificate,omitempty"`
	Address     string `json:"address,omitempty"`
	Route       string `json:"route,omitempty"` // its method and template
	Code        string `json:"code,omitempty"`  // of the problem; none = it was done
}

// EventHello is the first message of GET /events, of type hello.
type EventHello struct {
	Scope string   `json:"scope"` // process: only what passed through this process is told
	Since Time     `json:"since"` // when this process began to tell
	Kept  int      `json:"kept"`  // how many events it remembers for those who come back
	Kinds []string `json:"kinds"` // that are told
	// how often each kind has happened since then; tokens have no other events
	Tally map[string]int64 `json:"tally"`
}

// EventMissed is a message of GET /events, of type missed: events that this listener will not get.
type EventMissed struct {
	// how many, of which some may have been outside of the listener's names; none = it is not known
	AtMost int64 `json:"at_most,omitempty"`
}

// EventTally is a message of GET /events, of type tally.
type EventTally struct {
	Tally map[string]int64 `json:"tally"`
}

// EventEnd is the last message of GET /events, of type end, where there is time for one.
type EventEnd struct {
	// stopping, unauthorized, or crowded: the place was needed for another principal
	Reason string `json:"reason"`
}

// Session answers GET /console/api/session: the caller, and what the console shows it.
type Session struct {
	Role    string `json:"role"`              // none, read, use or admin
	Refused string `json:"refused,omitempty"` // why the key that was shown is not taken
	// none if access is not controlled, and for callers without key or certificate
	Principal string `json:"principal,omitempty"`
	// that the caller may touch, as orders:*; none = all
	Names []string `json:"names"`
	// whether access is controlled; without it every caller is an admin
	Access bool `json:"access"`
	// whether the console has no buttons that change anything
	Readonly bool `json:"readonly"`

	// embedded, standalone, sentinel or cluster; what follows is for those with role read
	Store      string `json:"store,omitempty"`
	Ack        int    `json:"ack,omitempty"`        // replicas that confirm every write
	Durability string `json:"durability,omitempty"` // what can be lost, and when
	// settings of the Redis under which it loses state by itself
	Hazards []string `json:"hazards,omitempty"`
}

// History answers GET /console/api/history: the totals of each series of this process.
type History struct {
	Until  Time                `json:"until"`   // end of the newest point
	StepMs int64               `json:"step_ms"` // time of each point
	Series map[string][]uint64 `json:"series"`  // how many in each step, the oldest first
	// operations in doubt now, of the whole store; absent where that is not known
	InDoubt *InDoubt `json:"in_doubt,omitempty"`
}

// InDoubt is a part of History: the figures that the metrics have as well.
type InDoubt struct {
	Operations int  `json:"operations"`
	Since      Time `json:"since,omitzero"` // when the oldest of them came to be
}
