package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/coatcheck/coatcheck/internal/fault"
	"github.com/coatcheck/coatcheck/internal/pipeline"
)

// The three classes of failure. Every error of a store, and every domain error that a script's
// answer stands for, is one of them under errors.Is.
var (
	// ErrRefused means that nothing happened: asking again is harmless and may help.
	ErrRefused = fault.ErrRefused
	// ErrLost means that the caller no longer holds it: stop using it.
	ErrLost = fault.ErrLost
	// ErrUnknownOutcome means that the write may or may not have happened, or may be lost again.
	// Ask again with the same owner, nonce or request id, or treat it as both done and not done.
	ErrUnknownOutcome = fault.ErrUnknownOutcome
)

// ErrUnavailable is the refusal of a store that cannot be reached, is loading, read-only, out of
// memory or otherwise takes no writes now.
var ErrUnavailable = fault.ErrUnavailable

// ErrUnsuitable is the refusal of a Redis that cannot show what a promise rests on: it has no
// master_replid that changes with its state, or shows none to scripts. Asking again does not help;
// the cause names the fact, and what to set. Tokens and locks do not need it.
var ErrUnsuitable = fault.ErrUnsuitable

// ErrClosed is the cause of each error of a store that was closed, beside its class.
var ErrClosed = redis.ErrClosed

// ErrWrongType is the refusal of a script that found a key holding another kind of value than it
// keeps there. Nothing was changed.
var ErrWrongType = fault.ErrWrongType

// ErrNewer is the [ErrWrongType] of a record that a newer version of coatcheck has written, in a
// format that this version does not know. Nothing was changed, and asking again does not help; the
// cause, a [*NewerError], names the version to install.
var ErrNewer = fault.ErrNewer

// Error is the failure of a call to the store: the operation, the class, and the original cause.
type Error struct {
	Op string // the script's name
	// ErrUnavailable or what wraps it, ErrUnsuitable, ErrWrongType or ErrNewer, ErrUnknownOutcome
	Class error
	Cause error
}

// Error reports the operation, the class and the cause. It holds no key and no argument.
func (e *Error) Error() string { return fmt.Sprintf("%s: %v: %v", e.Op, e.Class, e.Cause) }

// Unwrap returns the class and the cause, so that errors.Is finds context.DeadlineExceeded as well.
func (e *Error) Unwrap() []error { return []error{e.Class, e.Cause} }

// ShortfallError is the cause of an unknown outcome when fewer replicas than asked confirmed a
// write in time. The master has the write.
type ShortfallError struct {
	Want, Got int // replicas
	// with [AckAll] the addresses of those that did not confirm
	Missing string
}

// Error reports how many replicas were asked for, how many confirmed, and which did not.
func (s *ShortfallError) Error() string { return (*pipeline.ShortfallError)(s).Error() }

// UnsuitableError is the cause of an [ErrUnsuitable].
type UnsuitableError struct {
	Fact string // what the server does not show, such as "INFO replication shows no master_replid"
}

// Error names the fact, and the setting that does without it.
func (e *UnsuitableError) Error() string {
	return fmt.Sprintf("this Redis cannot show whether it has lost anything: %s. Counters, segments and worker ids need a master_replid "+
		"that changes with the server's state, in scripts too; tokens and locks do not. "+
		"Where every restart and failover keeps what was confirmed, --restarts trust does without", e.Fact)
}

// NewerError is the cause of an [ErrNewer].
type NewerError struct {
	Kind          string // of the record, as docs/keys.md has it, such as pool
	Format, Known int    // its format, 0 = not readable; and the newest that this version knows
	Version       string // the first version of coatcheck that reads it; "" = not said
}

// Error names the kind, the formats, and the version to install.
func (e *NewerError) Error() string {
	format, install := "an unknown format", "a newer version"
	if e.Format > 0 {
		format = "format " + strconv.Itoa(e.Format)
	}
	if e.Version != "" {
		install = e.Version + " or newer"
	}
	return fmt.Sprintf("a record in Redis (%s) is in %s, and this version of coatcheck knows format %d: install %s",
		e.Kind, format, e.Known, install)
}

// classify turns an error of go-redis into an *Error. sent reports whether the command's bytes were
// handed to a connection, harmless whether running it changes nothing.
func classify(ctx context.Context, op string, err error, sent, harmless bool) error {
	class := fault.Class(err, sent, harmless)
	if short, is := errors.AsType[*pipeline.ShortfallError](err); is {
		err = (*ShortfallError)(short)
	}
	if unsuitable, is := errors.AsType[*pipeline.UnsuitableError](err); is {
		err = &UnsuitableError{Fact: unsuitable.Fact}
	}
	if found, is := fault.ReadNewer(err); is && errors.Is(class, ErrNewer) {
		err = &NewerError{Kind: found.Kind, Format: found.Format, Known: found.Known, Version: found.Version}
	}
	if text, _, quotes := strings.Cut(err.Error(), ", with args beginning with:"); quotes {
		err = errors.New(text) // what follows are keys and arguments, which can be secret
	}
	ctxErr := ctx.Err()
	if ctxErr == nil && fault.TimedOut(err) {
		ctxErr = context.DeadlineExceeded
	}
	if ctxErr != nil && !errors.Is(err, ctxErr) {
		err = fmt.Errorf("%w (%w)", err, ctxErr)
	}
	if text := err.Error(); ctxErr == nil && errors.Is(err, redis.Nil) && strings.Contains(text, "sentinels") {
		// unreachable are all that answer for another master alone
		err = errors.New(strings.ReplaceAll(text, redis.Nil.Error(), "no master of that name"))
	}
	return &Error{Op: op, Class: class, Cause: err}
}
