package client

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/class"
)

// The three classes of failure. Every error of a call is one of them under errors.Is. They are the
// errors of these names in package redisstore.
var (
	// ErrRefused means that nothing happened: asking again is harmless and may help.
	ErrRefused = class.ErrRefused
	// ErrLost means that the caller no longer holds it: stop using it.
	ErrLost = class.ErrLost
	// ErrUnknownOutcome means that the write may have happened. [Client] says what to do.
	ErrUnknownOutcome = class.ErrUnknownOutcome
)

// The refusals and losses of a call. ErrSuperseded is a loss, the others are refusals.
var (
	ErrUnavailable = class.Refusal("the service or its store is not available")
	// ErrUnsuitable does not end by itself: the operator has to change the Redis, or a setting.
	ErrUnsuitable = class.Refusal("the service's store is not suitable")
	// ErrNewer does not end by itself: the operator has to install the version that Error.Detail
	// names.
	ErrNewer   = class.Refusal("a newer version than the service's has written to its store")
	ErrInvalid = class.Refusal("the request is not valid")
	// ErrUnauthorized means that the API key is missing or wrong.
	ErrUnauthorized = class.Refusal("the service does not know who is asking")
	ErrForbidden    = class.Refusal("the API key does not allow that")
	ErrTooLarge     = class.Refusal("the body is larger than the service takes")
	// ErrInProgress comes with Error.Wait: the remaining lease of the attempt.
	ErrInProgress   = class.Refusal("the first attempt is still running")
	ErrInDoubt      = class.Refusal("the first attempt ended without an answer")
	ErrMismatch     = class.Refusal("the token, or the request id, was used for another request")
	ErrUnknownToken = class.Refusal("unknown token")
	// ErrUnknownOperation is ErrUnknownToken of an operation that its name says.
	ErrUnknownOperation = class.Of(ErrUnknownToken, "unknown operation")
	ErrNotFound         = class.Refusal("there is nothing of that name")
	// ErrExhausted comes with Error.Wait: when the first can be free.
	ErrExhausted = class.Refusal("every worker id of the pool is taken or cooling")
	// ErrQuarantined comes with Error.Wait: until no lost window can be open, or counters go on.
	ErrQuarantined = class.Refusal("nothing is granted yet")
	ErrOtherPool   = class.Refusal("the pool has another layout, epoch, datacenter or ttl")
	ErrHeld        = class.Refusal("the lock is held by others")
	ErrPermits     = class.Refusal("the lock is in use with another number of permits")
	ErrPoolExists  = class.Refusal("the pool is there already")
	// ErrLayoutUsedUp does not end by itself: the pool's layout has no timestamps left.
	ErrLayoutUsedUp = class.Refusal("the pool's layout has no timestamps left")
	ErrNotAnInteger = class.Refusal("the counter does not hold an integer")
	ErrOverflow     = class.Refusal("the counter would overflow, or come to more than its template writes")
	// ErrLimit ends with SetCounter, or where the counter does.
	ErrLimit = class.Refusal("the counter would pass the request's limit")
	// ErrLimitReached comes with Error.Wait: until there is room.
	ErrLimitReached = class.Refusal("the rate limit is reached")
	// ErrBehind ends with SetCounter past all values.
	ErrBehind = class.Refusal("the counter has gone back, or may have")
	// ErrPermanent is for a TTL and a counter without an end. It ends with SetCounter, and a TTL.
	ErrPermanent = class.Refusal("the counter has no end")
	// ErrPast is for SetCounter to a value below the counter, without SetCounterOptions.Back.
	ErrPast = class.Refusal("the counter is past that value")
	// ErrAttemptRunning comes with Error.Wait: the remaining lease of the attempt.
	ErrAttemptRunning = class.Refusal("an attempt may still be running")
	ErrNotInDoubt     = class.Refusal("the operation is not in doubt")
	ErrSuperseded     = class.Loss("another attempt has the claim")
)

// ErrNotRecorded is Do's error when the function ran and returned an answer, but that answer may
// not have been recorded. It is an [ErrUnknownOutcome].
var ErrNotRecorded = class.Of(ErrUnknownOutcome, "the work is done, but its answer may not be recorded")

// WorkError is Do's error when the function that it ran has returned an error. It does not wrap
// that error, which may be another call's refusal: that says nothing of this operation, which may
// have happened.
type WorkError struct {
	Operation string // its name, for [Client.Operation] and [Client.Settle]; "" for an issued token
	Err       error  // the function's own
}

// Error reports what the function has returned.
func (e *WorkError) Error() string { return "the function that ran returned: " + e.Err.Error() }

// codes maps the service's problems to errors. Others are judged by their status.
var codes = map[api.Code]error{
	api.InvalidRequest:      ErrInvalid,
	api.InvalidName:         ErrInvalid,
	api.KeyMissing:          ErrInvalid,
	api.KeyMalformed:        ErrInvalid,
	api.Unauthorized:        ErrUnauthorized,
	api.Forbidden:           ErrForbidden,
	api.TooManyRequests:     ErrUnavailable,
	api.LimitReached:        ErrLimitReached,
	api.PayloadTooLarge:     ErrTooLarge,
	api.UnsupportedEncoding: ErrInvalid,
	api.InProgress:          ErrInProgress,
	api.IdempotencyUnknown:  ErrInDoubt,
	api.AttemptRunning:      ErrAttemptRunning,
	api.NotInDoubt:          ErrNotInDoubt,
	api.Superseded:          ErrSuperseded,
	api.PayloadMismatch:     ErrMismatch,
	api.TokenUnknown:        ErrUnknownToken,
	api.OperationUnknown:    ErrUnknownOperation,
	api.NotFound:            ErrNotFound,
	api.LayoutMismatch:      ErrOtherPool,
	api.PermitsMismatch:     ErrPermits,
	api.LockHeld:            ErrHeld,
	api.LeaseLost:           ErrLost,
	api.PoolExhausted:       ErrExhausted,
	api.PoolQuarantined:     ErrQuarantined,
	api.PoolExists:          ErrPoolExists,
	api.LayoutUsedUp:        ErrLayoutUsedUp,
	api.NotAnInteger:        ErrNotAnInteger,
	api.CounterOverflow:     ErrOverflow,
	api.CounterLimit:        ErrLimit,
	api.CounterBehind:       ErrBehind,
	api.CounterPermanent:    ErrPermanent,
	api.CounterBack:         ErrPast,
	api.PreconditionFailed:  ErrRefused,
	api.StoreUnavailable:    ErrUnavailable,
	api.StoreUnsuitable:     ErrUnsuitable,
	api.StoreNewer:          ErrNewer,
	api.UpstreamUnavailable: ErrUnavailable,
	api.RouteUnknown:        ErrRefused,
	api.PathNotPlain:        ErrInvalid,
	api.Overloaded:          ErrUnavailable,
	api.OutcomeUnknown:      ErrUnknownOutcome,
	api.InternalError:       ErrUnknownOutcome,
}

// withoutCode judges an answer that is not the service's own. Another server may have passed the
// request on, whatever its status, unless it says that the request is too large for it.
func withoutCode(status int) error {
	if status == http.StatusRequestEntityTooLarge {
		return ErrTooLarge
	}
	return ErrUnknownOutcome
}

// byStatus judges an answer of the service with a code that this client does not know.
func byStatus(status int) error {
	switch {
	case status == http.StatusRequestEntityTooLarge:
		return ErrTooLarge
	case status == http.StatusTooManyRequests:
		return ErrUnavailable
	case status >= 400 && status <= 499:
		return ErrRefused
	}
	return ErrUnknownOutcome
}

// Error is the error of a call. errors.Is finds its class and, by its code, its sentinel. It is
// read-only once returned.
type Error struct {
	Op        string // such as "claim token"
	Code      string // of the service's problem; "" if there is none
	Status    int    // of the HTTP answer; 0 = none came
	Title     string // what all problems of this code have in common
	Detail    string // the particulars of this problem, or what is wrong with the call
	RequestID string // under which the service's log has the request
	// a useful one, rounded up to seconds, of a rate limit to milliseconds; 0 = not known
	Wait time.Duration
	// the same request may succeed later, according to the service, and repeating it does no harm
	Retryable bool
	See       string // where to read on, with … for the token

	// with ErrInDoubt, for [Client.Operation] and [Client.Settle]: the operation's name, and since
	// when it is in doubt; "" and the zero time = not known
	Operation string
	Since     time.Time

	limit LimitState // with ErrLimitReached

	class error // if the code does not determine it; nil = an unknown outcome
	read  bool  // the call changes nothing
	cause *cause
}

// Error reports the operation, the answer, and why. It holds no token and no proof.
func (e *Error) Error() string {
	var text strings.Builder
	text.WriteString(e.Op)
	if kind := e.kind().Error(); !strings.HasPrefix(e.Detail, kind) {
		text.WriteString(": " + kind)
	}
	if e.Detail != "" {
		text.WriteString(": " + e.Detail)
	}
	if e.cause != nil {
		text.WriteString(": " + e.cause.text)
	}
	if e.Status != 0 {
		fmt.Fprintf(&text, " (%s)", strings.Join(e.origin(), ", "))
	}
	return text.String()
}

func (e *Error) origin() (parts []string) {
	parts = append(parts, fmt.Sprintf("status %d", e.Status))
	if e.Code != "" {
		parts = append(parts, e.Code)
	}
	if e.RequestID != "" {
		parts = append(parts, "request "+e.RequestID)
	}
	return parts
}

// RetryAfter returns Wait.
func (e *Error) RetryAfter() time.Duration { return e.Wait }

// Unwrap returns the sentinel and, if no answer came, the cause: errors.Is finds
// context.DeadlineExceeded and syscall.ECONNREFUSED as well.
func (e *Error) Unwrap() []error {
	if e.cause == nil {
		return []error{e.kind()}
	}
	return []error{e.kind(), e.cause}
}

// kind is the sentinel that the error is. A call that changes nothing was just not served.
func (e *Error) kind() error {
	kind, known := codes[api.Code(e.Code)]
	if !known {
		kind = e.class
	}
	if kind == nil {
		kind = ErrUnknownOutcome
	}
	if e.read && errors.Is(kind, ErrUnknownOutcome) {
		return ErrUnavailable
	}
	return kind
}

// cause is a call's underlying error, for errors.Is and errors.As, under a text without secrets.
type cause struct {
	text string
	err  error
}

func (c *cause) Error() string        { return c.text }
func (c *cause) Is(target error) bool { return errors.Is(c.err, target) }
func (c *cause) As(target any) bool   { return errors.As(c.err, target) }
