package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// level says who asks for what a check looks at.
type level string

// The levels.
const (
	// the draft says so, or without it an operation happens twice, is lost, or is shown to another.
	must    level = "MUST"
	should  level = "SHOULD"  // the draft recommends it, or a client is much worse off without it
	promise level = "PROMISE" // coatcheck promises it; the draft leaves it open
)

// check is one thing that a server has to get right.
type check struct {
	name        string
	level       level
	requirement string // one line
	needs       []need
	// It returns if it is right, and ends with a *failure if it is not, or with notApplicable if it
	// could not be seen: see end.
	look func(context.Context, *suite)
}

// need is something that the caller has to tell before a check can look.
type need struct {
	flags string
	told  func(*options) bool
}

var (
	slowHandler = need{"-slow-header, -slow-body or -slow", func(o *options) bool {
		return o.slow > 0 || o.slowBody != "" || o.slowHeader != field{}
	}}
	lease      = need{"-lease", func(o *options) bool { return o.lease > 0 }}
	badHandler = need{"-error-header or -error-body", func(o *options) bool { return o.errorBody != "" || o.errorHeader != field{} }}
	principals = need{"-principal-a and -principal-b", func(o *options) bool { return o.principalA != field{} && o.principalB != field{} }}
	tokens     = need{"-token-url", func(o *options) bool { return o.tokenURL != "" }}
	early      = need{"-early-header", func(o *options) bool { return o.earlyHeader != field{} }}
	redirects  = need{"-redirect-path", func(o *options) bool { return o.redirectPath != "" }}
	resolver   = need{"-service-url and -resolve", func(o *options) bool { return o.serviceURL != "" && o.resolve != "" }}
	mark       = need{"-marker", func(o *options) bool { return o.marker != field{} }}
)

// missing is what a check needs and was not told, "" if nothing.
func (c check) missing(o *options) string {
	var flags []string
	for _, need := range c.needs {
		if !need.told(o) {
			flags = append(flags, need.flags)
		}
	}
	return strings.Join(flags, ", ")
}

type failure struct{ sent, came, want string }

func (f *failure) Error() string {
	return fmt.Sprintf("sent %s; came %s; expected %s", f.sent, f.came, f.want)
}

// end ends the check under way unless err is nil. It is for the goroutine of attempt.
func end(err error) {
	if err != nil {
		panic(ended{err})
	}
}

type ended struct{ error }

// attempt calls what may end a check, and returns the error that it has ended with.
func attempt(look func()) (err error) {
	defer func() {
		switch cause := recover().(type) {
		case nil:
		case ended:
			err = cause.error
		default:
			panic(cause)
		}
	}()
	look()
	return nil
}

// failf ends the check: an answer is not what was expected.
func failf(a answer, format string, args ...any) { end(failureOf(a, format, args...)) }

func failureOf(a answer, format string, args ...any) error {
	return &failure{a.request.String(), a.String(), fmt.Sprintf(format, args...)}
}

// notApplicable is the reason why a check could not see what it looks for.
type notApplicable string

func (n notApplicable) Error() string { return string(n) }

type verdict string

// The verdicts.
const (
	pass  verdict = "pass"
	fails verdict = "fail"
	na    verdict = "not-applicable"
)

type result struct {
	Name        string  `json:"name"`
	Level       level   `json:"level"`
	Requirement string  `json:"requirement"`
	Verdict     verdict `json:"verdict"`
	Reason      string  `json:"reason,omitempty"` // why it is not applicable
	Sent        string  `json:"sent,omitempty"`   // these three of a failure
	Came        string  `json:"came,omitempty"`
	Expected    string  `json:"expected,omitempty"`
	Took        int64   `json:"took_ms"`
}

func (s *suite) judge(ctx context.Context, c check) result {
	begin := time.Now()
	r := result{Name: c.name, Level: c.level, Requirement: c.requirement, Verdict: pass}
	err := error(notApplicable("needs " + c.missing(s.o)))
	if c.missing(s.o) == "" {
		err = attempt(func() { c.look(ctx, s) })
	}
	if reason, ok := errors.AsType[notApplicable](err); ok {
		r.Verdict, r.Reason = na, string(reason)
	} else if wrong, ok := errors.AsType[*failure](err); ok {
		r.Verdict, r.Sent, r.Came, r.Expected = fails, wrong.sent, wrong.came, wrong.want
	} else if err != nil {
		r.Verdict, r.Came, r.Expected = fails, err.Error(), "a server that answers"
	}
	r.Took = time.Since(begin).Milliseconds()
	return r
}
