package api

import (
	"fmt"
)

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

// ReplicasGone answers POST /store/replicas-gone.
type ReplicasGone struct {
	Gone []string `json:"gone"` // the addresses, host:port, for which nothing waits any more
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
	ID     string `json:"id"`
	Prefix string `json:"prefix,omitempty"` // of a TypeID that has one
	UUID   string `json:"uuid"`             // the same 128 bits
	Time   Time   `json:"time,omitzero"`    // none for a TypeID whose UUID has none
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
	ID         string `json:"id"`   // in decimal
	Time       Time   `json:"time"` // when its unit of time begins
	WorkerID   int    `json:"worker_id"`
	Datacenter int    `json:"datacenter"`
	Sequence   int64  `json:"sequence"`
	Layout     string `json:"layout"` // with which it was decoded; the id does not tell
	Epoch      Time   `json:"epoch"`
}
