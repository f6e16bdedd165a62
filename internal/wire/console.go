package wire

import "time"

// Event is something that happened in one server process: a message of GET /events. It holds no
// token, no lease and no key.
type Event struct {
	At       time.Time `json:"at"`                  // by that process's clock
	Kind     string    `json:"kind"`                // such as lock.granted
	Name     string    `json:"name,omitempty"`      // of the counter, pool or lock
	WorkerID *int      `json:"worker_id,omitempty"` // of workers
	Fence    int64     `json:"fence,omitempty"`     // of grants, and of a lock that was taken away by force
	Holder   string    `json:"holder,omitempty"`    // as who was granted it named itself
	Value    *int64    `json:"value,omitempty"`     // what a counter was set to

	Operation string `json:"operation,omitempty"` // that was settled, by its name
	Outcome   string `json:"outcome,omitempty"`   // as which it was settled
	By        string `json:"by,omitempty"`        // the principal who settled it; none where access is not controlled
	Reason    string `json:"reason,omitempty"`    // as that principal gave it

	EventBy // for those of role admin who may touch all names
}

// EventBy is who has asked for what an event tells of, and how it ended. It holds no secret.
type EventBy struct {
	Principal   string `json:"principal,omitempty"`
	KeyID       string `json:"key_id,omitempty"`      // also of one that was shown with a wrong secret
	Certificate string `json:"certificate,omitempty"` // a name in the client's certificate, which was verified
	Address     string `json:"address,omitempty"`
	Route       string `json:"route,omitempty"` // its method and template
	Code        string `json:"code,omitempty"`  // of the problem; none = it was done
}

// EventHello is the first message of GET /events, of type hello.
type EventHello struct {
	Scope string           `json:"scope"` // process: only what passed through this process is told
	Since time.Time        `json:"since"` // when this process began to tell
	Kept  int              `json:"kept"`  // how many events it remembers for those who come back
	Kinds []string         `json:"kinds"` // that are told
	Tally map[string]int64 `json:"tally"` // how often each thing has happened since then; of tokens it is all that is told
}

// EventMissed is a message of GET /events, of type missed: events that this listener will not get.
type EventMissed struct {
	AtMost int64 `json:"at_most,omitempty"` // how many, of which some may have been outside of the listener's names; none = it is not known
}

// EventTally is a message of GET /events, of type tally.
type EventTally struct {
	Tally map[string]int64 `json:"tally"`
}

// EventEnd is the last message of GET /events, of type end, where there is time for one.
type EventEnd struct {
	Reason string `json:"reason"` // stopping, unauthorized, or crowded: the place was needed for another principal
}

// Session answers GET /console/api/session: who is asking, and what the console is to show them.
type Session struct {
	Role      string   `json:"role"`                // none, read, use or admin
	Refused   string   `json:"refused,omitempty"`   // why the key that was shown is not taken
	Principal string   `json:"principal,omitempty"` // none where access is not controlled, and of those who showed nothing
	Names     []string `json:"names"`               // that the caller may touch, as orders:*; none = all
	Access    bool     `json:"access"`              // whether access is controlled: else everybody is an admin
	Readonly  bool     `json:"readonly"`            // whether the console has no buttons that change anything

	Store      string   `json:"store,omitempty"`      // embedded, standalone, sentinel or cluster; what follows is for those with role read
	Ack        int      `json:"ack,omitempty"`        // replicas that confirm every write
	Durability string   `json:"durability,omitempty"` // what can be lost, and when
	Hazards    []string `json:"hazards,omitempty"`    // settings of the Redis under which it loses state by itself
}
