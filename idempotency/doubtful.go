package idempotency

import (
	"net/http"
	"runtime"
)

// timeoutHandler is what [http.TimeoutHandler] answers from, whether the handler within has
// answered or its time is over.
const timeoutHandler = "net/http.(*timeoutHandler).ServeHTTP"

// doubtful reports whether an answer itself says that nobody knows what the handler has done: a
// status that is none, or the 503 of an http.TimeoutHandler within the guard, whose handler goes
// on.
func (r *recorder) doubtful() bool { return r.answer.Status > 599 || r.timedOut }

// suspect notes who gives a status of 503. If it is a TimeoutHandler, its handler may have given
// it.
func (r *recorder) suspect() {
	_, r.timedOut = calledByTimeoutHandler()
}

// acquit takes that back: the answer of a handler is written at once, that of a TimeoutHandler
// itself by io.WriteString or not at all.
func (r *recorder) acquit() {
	if by, is := calledByTimeoutHandler(); !is || by != "io.WriteString" {
		r.timedOut = false
	}
}

// calledByTimeoutHandler reports whether an http.TimeoutHandler is among the callers, and what it
// has called.
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

// validStatus panics for what is no status, as net/http does.
func validStatus(status int) {
	if status < http.StatusContinue || status > 999 {
		panic("idempotency: a handler gave a status that is none")
	}
}
