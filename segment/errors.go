package segment

import (
	"errors"

	"github.com/coatcheck/coatcheck/internal/fault"
	"github.com/coatcheck/coatcheck/redisstore"
)

// Why there is no id, besides the [Source]'s answers. All are refusals: the caller may ask again.
var (
	// ErrInvalid means that a tag's name is not valid.
	ErrInvalid = fault.Refusal("segment: the request is not valid")
	// ErrStarved means that the context ended before a range had come. It has the context's cause.
	ErrStarved = fault.Refusal("segment: no ids were ready in time")
	// ErrTooManyTags means that the maximum of tags is in use. redisstore.RetryAfter returns when
	// one can make room.
	ErrTooManyTags = fault.Refusal("segment: too many tags are in use")
	// ErrWentBack refuses ids at or below some that this process has seen. They are not used.
	ErrWentBack = fault.Refusal("segment: the source went back")
	// ErrBadRange means that the source's answer is no range of ids. It is not used.
	ErrBadRange = fault.Refusal("segment: the source gave no range of ids")
	// ErrDatabase means that the SQL database could not be reached, or refused the statement. It is
	// a [redisstore.ErrUnavailable].
	ErrDatabase error = databaseError{}
	// ErrClosed means that the Segments were closed. That is for good.
	ErrClosed = fault.Refusal("segment: closed")
)

// The refusals of a [Source]: nothing was taken.
var (
	// ErrNotFound means that the source has no such tag.
	ErrNotFound = fault.Refusal("segment: no such tag")
	// ErrExhausted means that the tag has no ids left below 2^63.
	ErrExhausted = fault.Refusal("segment: the tag has no ids left below 2^63")
)

type databaseError struct{}

func (databaseError) Error() string { return "segment: the database is not available" }
func (databaseError) Unwrap() error { return redisstore.ErrUnavailable }

// errGone means that a chain was dropped: the tag has another one, or none.
var errGone = errors.New("segment: dropped")
