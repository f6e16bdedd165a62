package api

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
