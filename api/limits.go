package api

// LimitRequest is the body of POST /limit/{name}.
type LimitRequest struct {
	Rate  *int64 `json:"rate"`            // required: so much in each span
	PerMs *int64 `json:"per_ms"`          // required: the span
	Burst *int64 `json:"burst,omitempty"` // so much at once; none = rate
	Cost  *int64 `json:"cost,omitempty"`  // none = 1; below 0 gives back (admin), 0 takes nothing
}

// LimitTaken answers POST /limit/{name}.
type LimitTaken struct {
	Allowed   bool  `json:"allowed"`   // true; where it is false the answer is a problem
	Remaining int   `json:"remaining"` // so much can be taken at once
	ResetMs   int64 `json:"reset_ms"`  // until all of the burst can be
}
