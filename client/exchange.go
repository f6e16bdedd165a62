package client

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync/atomic"
)

// call is one request of the protocol and its expected answer.
type call struct {
	op     string // as errors name it
	name   string // that it is about; a secret's is in token
	method string
	path   string // with the query
	token  string // a secret
	lease  string // a secret: the proof of a lease, or the name of a place in a queue
	key    string // a secret: the client's API key, once the call is made
	repeat string // what makes it the same call when it is sent again; "" = nothing
	body   any    // nil = none
	status int    // of success; 0 = 200, or 204 where the answer has no JSON
	into   any    // where the answer's JSON goes; nil = the answer has none
}

// largeBody is the size in bytes from which on a body waits until the service accepts it. A service
// that refuses one unread closes the connection, and its answer would be lost.
const largeBody = 128 << 10

// ask makes a call by a method of the client, and returns its answer, whole or not at all.
func ask[T any](ctx context.Context, by func(context.Context, call) error, asked call, whole func(T) bool) (T, error) {
	var answer, none T
	asked.into = &answer
	if err := by(ctx, asked); err != nil {
		return none, err
	}
	if !whole(answer) {
		return none, asked.unreadable()
	}
	return answer, nil
}

// exchange sends a request, once, and reads its answer. Every failure is an *Error.
func (c *Client) exchange(ctx context.Context, call call) error {
	call.key = c.key
	failure := &Error{Op: call.op, RequestID: rand.Text(), read: call.method == http.MethodGet}
	if err := ctx.Err(); err != nil {
		return failure.because(ErrRefused, err, call)
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	var line contact
	request, err := c.request(httptrace.WithClientTrace(ctx, line.trace()), call, failure.RequestID)
	if err != nil {
		return failure.because(ErrInvalid, err, call)
	}
	response, err := c.web.Do(request)
	if err != nil {
		return failure.because(line.class(), err, call)
	}
	defer func() { _ = response.Body.Close() }() // what is left of it does not matter
	failure.Status = response.StatusCode
	body, err := io.ReadAll(io.LimitReader(response.Body, min(c.most, math.MaxInt64-1)+1))
	switch {
	case err != nil:
		return failure.because(withoutCode(response.StatusCode), err, call)
	case int64(len(body)) > c.most:
		return failure.because(withoutCode(response.StatusCode), errTooLong, call)
	case response.StatusCode != call.success():
		return failure.problem(response.Header, body, call)
	case call.into != nil && json.Unmarshal(body, call.into) != nil:
		return failure.because(ErrUnknownOutcome, errUnreadable, call)
	}
	return nil
}

var (
	errTooLong    = errors.New("the answer is longer than this client reads")
	errUnreadable = errors.New("the answer cannot be read")
)

func (c *Client) request(ctx context.Context, call call, id string) (*http.Request, error) {
	var body []byte
	if call.body != nil {
		var err error
		if body, err = json.Marshal(call.body); err != nil {
			return nil, err
		}
	}
	request, err := http.NewRequestWithContext(ctx, call.method, c.base+call.path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", "application/json")
	request.Header.Set("X-Request-Id", id)
	if c.key != "" {
		request.Header.Set("Authorization", "Bearer "+c.key)
	}
	if len(body) > 0 {
		request.Header.Set("Content-Type", "application/json")
	}
	if len(body) > largeBody {
		request.Header.Set("Expect", "100-continue")
	}
	if call.lease != "" {
		request.Header.Set("Lease-Token", call.lease)
	}
	if call.repeat != "" {
		request.Header.Set("Idempotency-Key", quoted(call.repeat))
	}
	return request, nil
}

// quoted is a text of printable ASCII as an RFC 8941 string.
func quoted(text string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(text) + `"`
}

// because completes an error without an answer of the service.
func (e *Error) because(class, err error, call call) *Error {
	if about, ok := errors.AsType[*url.Error](err); ok {
		err = about.Err // without the URL, which holds the token
	}
	e.class, e.cause = class, &cause{text: call.clean(err.Error()), err: err}
	return e
}

func (call call) success() int {
	if call.into == nil {
		return cmp.Or(call.status, http.StatusNoContent)
	}
	return cmp.Or(call.status, http.StatusOK)
}

// invalid is the error of a call that was not sent.
func (call call) invalid(rule string) error {
	return &Error{Op: call.op, Detail: rule, class: ErrInvalid}
}

// unreadable is the error of a call whose answer has the right status and not what belongs into it.
func (call call) unreadable() error {
	failure := &Error{Op: call.op, Status: call.success(), read: call.method == http.MethodGet}
	return failure.because(ErrUnknownOutcome, errUnreadable, call)
}

// contact records whether a request was given a connection.
type contact struct{ asked, had atomic.Bool }

func (c *contact) trace() *httptrace.ClientTrace {
	return &httptrace.ClientTrace{
		GetConn: func(string) { c.asked.Store(true) },
		GotConn: func(httptrace.GotConnInfo) { c.had.Store(true) },
	}
}

// class judges a request that got no answer. Nothing was sent if a connection was asked for and
// never came about. A transport that reports neither may have sent it.
func (c *contact) class() error {
	if c.asked.Load() && !c.had.Load() {
		return ErrUnavailable
	}
	return ErrUnknownOutcome
}
