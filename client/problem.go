package client

import (
	"encoding/json"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/names"
)

const (
	maxText = 500                  // characters of a text from elsewhere
	maxWait = 365 * 24 * time.Hour // of a Retry-After
)

var (
	codeForm = names.NewForm("a-z0-9-", 1, 64)
	idForm   = names.NewForm("A-Za-z0-9._:@/+=-", 1, 128)
)

// problem completes an error with an answer. The code counts only if it is the service's own.
func (e *Error) problem(header http.Header, body []byte, call call) *Error {
	e.class = withoutCode(e.Status)
	e.Wait = retryAfter(header)
	if id := header.Get("X-Request-Id"); idForm.MatchString(id) && call.clean(id) == id {
		e.RequestID = id
	}
	problem, ok := parseProblem(e.Status, header, body)
	if code := string(problem.Code); !ok || call.clean(code) != code {
		e.Detail = call.clean(foreign(e.Status, header))
		return e
	}
	e.class = byStatus(e.Status)
	e.Code, e.Retryable = string(problem.Code), problem.Retryable
	e.Title, e.Detail, e.See = call.clean(problem.Title), call.clean(problem.Detail), call.clean(problem.See)
	e.limited(problem)
	if names.Digested.MatchString(problem.Operation) {
		e.Operation, e.Since = problem.Operation, problem.Since.Time
	}
	return e
}

// limited notes what a problem says of a rate limit that is reached.
func (e *Error) limited(problem api.Problem) {
	if problem.Code != api.LimitReached {
		return
	}
	if wait := problem.RetryAfterMs; wait != nil && *wait > 0 && *wait <= maxWait.Milliseconds() {
		e.Wait = time.Duration(*wait) * time.Millisecond
	}
	if problem.Remaining != nil && problem.ResetMs != nil {
		e.limit = LimitState{max(*problem.Remaining, 0), time.Duration(max(*problem.ResetMs, 0)) * time.Millisecond}
	}
}

// parseProblem reads a problem of the service; ok is false for others, such as a proxy's page.
func parseProblem(status int, header http.Header, body []byte) (problem api.Problem, ok bool) {
	media, _, err := mime.ParseMediaType(header.Get("Content-Type"))
	if err != nil || media != "application/problem+json" || status < 400 || json.Unmarshal(body, &problem) != nil {
		return api.Problem{}, false
	}
	return problem, codeForm.MatchString(string(problem.Code))
}

// foreign completes an error with an answer that is not the service's.
func foreign(status int, header http.Header) string {
	if status < 300 || status > 399 {
		return "what answered did not say it as coatcheck does"
	}
	const redirect = "a redirect, which is not followed"
	target, err := url.Parse(header.Get("Location"))
	if err != nil || target.Scheme != "http" && target.Scheme != "https" || target.Host == "" {
		return redirect
	}
	return redirect + ": use its host if that is the service's, " + target.Scheme + "://" + target.Host
}

// retryAfter reads a wait in seconds or until a time by the answerer's clock; 0 if there is none.
func retryAfter(header http.Header) time.Duration {
	value := header.Get("Retry-After")
	if seconds, err := strconv.ParseUint(value, 10, 64); err == nil {
		return time.Duration(min(seconds, uint64(maxWait/time.Second))) * time.Second
	}
	until, err := http.ParseTime(value)
	if err != nil {
		return 0
	}
	now, err := http.ParseTime(header.Get("Date"))
	if err != nil {
		now = time.Now()
	}
	return min(max(until.Sub(now), 0), maxWait)
}

// clean makes a foreign text fit for an error: plain, and without the call's secrets. Unprintable
// characters go first: a secret with one in it would stay whole otherwise.
func (call call) clean(text string) string {
	text = printed(text)
	for _, secret := range []string{call.token, call.lease, call.key} {
		if len(secret) >= 8 { // what is shorter is no secret, and may be part of a word
			text = strings.ReplaceAll(text, secret, "…")
		}
	}
	return shortened(text)
}

// printed drops unprintable characters, such as a terminal's control sequences.
func printed(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) || r == unicode.ReplacementChar {
			return -1
		}
		return r
	}, text)
}

func shortened(text string) string {
	if runes := []rune(text); len(runes) > maxText {
		return string(runes[:maxText]) + "…"
	}
	return text
}
