package server

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/coatcheck/coatcheck/access"
	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/frontdoor"
	"github.com/coatcheck/coatcheck/internal/names"
	"github.com/coatcheck/coatcheck/internal/secret"
)

const nameRule = names.Rule + ", percent-decoded once"

// request is a request as its handler reads it. The first fault stays in err, and values read after
// it mean nothing: a handler reads all that it needs, and then checks err once, before it does
// anything.
type request struct {
	echo.Context

	err error
}

func (r *request) fail(err error) {
	if r.err == nil {
		r.err = err
	}
}

func (r *request) invalid(field, detail string) { r.fail(invalid(field, detail)) }

func (r *request) ctx() context.Context { return r.Request().Context() }

// name reads a name from the path, where the route's template says, if the caller may touch it.
// Echo gives some parameters decoded and others not, so this reads the path as it came and decodes
// the segment exactly once.
func (r *request) name(param string) string {
	text, err := url.PathUnescape(r.segment(param))
	if err != nil || !names.Valid(text) {
		r.fail(&fault{api.InvalidName, param, nameRule})
		return ""
	}
	r.mayTouch(param, text)
	return text
}

// nameOf is [request.name] for code outside of handlers.
func nameOf(c echo.Context, param string) (string, error) {
	r := &request{Context: c}
	text := r.name(param)
	return text, r.err
}

// mayTouch refuses a name that is not among the caller's, in the same way whether or not it exists.
func (r *request) mayTouch(field, name string) {
	if !caller(r).Names.Allow(name) {
		r.fail(&fault{api.Forbidden, field, "outside of the names that this caller may touch"})
	}
}

// mustBe refuses a caller of a lower role where a part of the request needs more than its route.
func (r *request) mustBe(role access.Role, field string) {
	if role == access.Admin {
		r.Set(adminActKey, true)
	}
	if who := caller(r); !who.May(role) {
		challenge(r, `error="insufficient_scope", scope="`+role.String()+`"`)
		r.fail(&fault{api.Forbidden, field, "this needs role " + role.String() + ", and this caller has " + who.Role.String()})
	}
}

// segment finds a parameter's part of the path by the template, which has as many segments.
func (r *request) segment(param string) string {
	template, path := r.Path(), frontdoor.RawPath(r.Request().URL)
	for more := true; more; {
		var wanted, found string
		wanted, template, more = strings.Cut(template, "/")
		found, path, _ = strings.Cut(path, "/")
		if strings.HasPrefix(wanted, ":") && wanted[1:] == param {
			return found
		}
	}
	r.fail(echo.ErrNotFound)
	return ""
}

// int reads a whole number from the query, within bounds; absent means its default.
func (r *request) int(field string, absent, least, most int64) int64 {
	if !has(r, field) {
		return absent
	}
	n, err := strconv.ParseInt(r.QueryParam(field), 10, 64)
	if err != nil || n < least || n > most || strconv.FormatInt(n, 10) != r.QueryParam(field) {
		r.invalid(field, fmt.Sprintf("a whole number from %d to %d", least, most))
	}
	return n
}

// flag reads true or false from the query; absent is false.
func (r *request) flag(field string) bool {
	text := r.QueryParam(field)
	if has(r, field) && text != "true" && text != "false" {
		r.invalid(field, "true or false")
	}
	return text == "true"
}

// without refuses query fields that have no meaning beside the others.
func (r *request) without(detail string, fields ...string) {
	for _, field := range fields {
		if has(r, field) {
			r.invalid(field, detail)
		}
	}
}

// time reads a moment from the query; the zero time if it is not there.
func (r *request) time(field string) time.Time {
	if !has(r, field) {
		return time.Time{}
	}
	at, err := time.Parse(time.RFC3339, r.QueryParam(field))
	if err != nil || at.Before(time.Unix(0, 0)) {
		r.invalid(field, "a time is RFC 3339 from 1970 on, such as 2020-01-01T00:00:00Z")
	}
	return at.UTC()
}

// millis reads a duration field of the body, within bounds; nil means its default.
func (r *request) millis(field string, value *int64, absent, least, most time.Duration) time.Duration {
	if value == nil {
		return absent
	}
	if *value < least.Milliseconds() || *value > most.Milliseconds() {
		r.invalid(field, fmt.Sprintf("%d to %d milliseconds", least.Milliseconds(), most.Milliseconds()))
	}
	return time.Duration(*value) * time.Millisecond
}

const leaseHeader = "Lease-Token"

func (r *request) lease() string {
	tokens := r.Request().Header.Values(leaseHeader)
	if len(tokens) != 1 || tokens[0] == "" {
		r.invalid(leaseHeader, "this header belongs here once: the lease as it was granted")
		return ""
	}
	return tokens[0]
}

const chosenLeaseRule = "22 characters of A–Z a–z 0–9 _ -, made at random for this request alone"

func (r *request) hasLease() bool { return len(r.Request().Header.Values(leaseHeader)) > 0 }

// chosenLease reads the secret that a client has made itself, so that it can repeat a request whose
// answer it did not get; "" = it has sent none.
func (r *request) chosenLease() string {
	if !r.hasLease() {
		return ""
	}
	lease := r.lease()
	if !secret.Valid(lease) {
		r.invalid(leaseHeader, chosenLeaseRule)
	}
	return lease
}

func (r *request) noFields() { r.body(&struct{}{}) }

// answer answers with JSON that no cache may store.
func (r *request) answer(status int, message any) error {
	noStore(r)
	r.Response().Header()[echo.HeaderContentType] = jsonType
	return r.JSON(status, message)
}

// result answers with what a call came to, unless it failed.
func (r *request) result(message any, err error) error {
	if err != nil {
		return err
	}
	return r.answer(http.StatusOK, message)
}

func (r *request) done() error {
	noStore(r)
	return r.NoContent(http.StatusNoContent)
}

// number answers with JSON, or with bare digits for a client that asked for text.
func (r *request) number(value int64, message any) error {
	if wantsText(r) {
		noStore(r)
		return r.String(http.StatusOK, strconv.FormatInt(value, 10)+"\n")
	}
	return r.answer(http.StatusOK, message)
}

// wantsText reports whether the client asked for bare digits.
func wantsText(c echo.Context) bool {
	accept := strings.Join(c.Request().Header.Values(echo.HeaderAccept), ",")
	return strings.Contains(accept, echo.MIMETextPlain) && !strings.Contains(accept, echo.MIMEApplicationJSON)
}

// jsonType and notStored are shared by all answers: no code changes a header's values in place.
var jsonType, notStored = []string{echo.MIMEApplicationJSON}, []string{"no-store"}

// noStore marks an answer for no cache: the request hands something out or changes something.
func noStore(c echo.Context) { c.Response().Header()[echo.HeaderCacheControl] = notStored }

func byteCount(n int64) string { return strconv.FormatInt(n, 10) + " bytes" }
