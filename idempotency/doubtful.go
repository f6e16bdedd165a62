package idempotency

import (
	"net/http"
	"runtime"
)

// timeoutHandler is the function in which [http.TimeoutHandler] answers, in time or too late.
const timeoutHandler = "net/http.(*timeoutHandler).ServeHTTP"

// doubtful reports whether an answer itself shows that the handler's effect is unknown: an invalid
// status, or the 503 of an http.TimeoutHandler inside the guard, whose handler goes on.
func (r *recorder) doubtful() bool { return r.answer.Status > 599 || r.timedOut }

// suspect records the writer of a 503, which may be a TimeoutHandler's and not its handler's.
func (r *recorder) suspect() {
	_, r.timedOut = calledByTimeoutHandler()
}

// acquit takes that back: a handler's answer is written at once, a TimeoutHandler's own by
// io.WriteString or not at all.
func (r *recorder) acquit() {
	if by, is := calledByTimeoutHandler(); !is || by != "io.WriteString" {
		r.timedOut = false
	}
}

// calledByTimeoutHandler reports whether an http.TimeoutHandler is among the callers, and returns
// the function that it has called.
func calledByTimeoutHandler() (called string, is bool) {
	var callers [64]uintptr
	frames := runtime.CallersFrames(callers[:runtime.Callers(1, callers[:])])
	for {
		frame, more := frames.Next()
		if frame.Function == timeoutHandler {
			return called, true
		}
		if !more {
			return "", false
		}
		called = frame.Function
	}
}

// validStatus panics for an invalid status, as net/http does.
func validStatus(status int) {
	if status < http.StatusContinue || status > 999 {
		panic("idempotency: a handler gave a status that is none")
	}
}
