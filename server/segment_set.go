package server

import (
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/segment/redissource"
	"github.com/coatcheck/coatcheck/server/internal/events"
)

// setSegment has a tag of the store go on at an id. It is the way out for a tag that is held after
// a loss. Ranges that processes have fetched ahead stay in use.
func (h *ids) setSegment(r *request) error {
	tag := r.name("tag")
	var asked api.SegmentRequest
	r.body(&asked)
	next, err := strconv.ParseInt(asked.Next, 10, 64)
	if err != nil || next < 1 || strconv.FormatInt(next, 10) != asked.Next {
		r.invalid("next", "required: the first id that may be handed out, digits of 1 to 9223372036854775807 in a string")
	}
	if h.stored == nil {
		r.invalid("tag", "this server takes its tags from an SQL database: set max_id there, or seed the tag with coatcheck segment seed")
	}
	if r.err != nil {
		return r.err
	}
	err = h.stored.SetNext(r.ctx(), tag, next)
	if errors.Is(err, redissource.ErrPast) {
		at := err.Error()
		return invalid("next", "ids up to where the tag is may have been handed out: "+at[strings.LastIndex(at, ": ")+2:])
	}
	if err != nil {
		return err
	}
	h.journal.did(r, api.Event{Kind: events.SegmentSet, Name: tag, Value: new(next)})
	return r.answer(http.StatusOK, api.Segment{Tag: tag, Next: strconv.FormatInt(next, 10)})
}
