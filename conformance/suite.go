package main

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// suite points the checks at one server. Its checks run one after the other.
type suite struct {
	o      *options
	tls    *tls.Config
	client *http.Client
	seen   *conflict // what several checks look at, once it has been seen
}

func newSuite(o *options) *suite {
	trust := &tls.Config{MinVersion: tls.VersionTLS12}
	return &suite{o: o, tls: trust, client: newClient(trust)}
}

// preflight finds out whether the server answers as the command line says.
func (s *suite) preflight(ctx context.Context) error {
	var key string
	if err := attempt(func() { key = s.newKey(ctx) }); err != nil {
		return fmt.Errorf("no token from %s: %w", s.o.tokenURL, err)
	}
	r := s.request(key)
	a, err := s.try(ctx, r, strings.NewReader(r.body))
	if err != nil {
		return fmt.Errorf("the server is not reachable: %w", err)
	}
	if !a.ok() {
		return fmt.Errorf("%s was answered %s: set -method, -path, -body, -content-type and -H so that a request with a new key succeeds",
			a.request, a)
	}
	if err := attempt(func() { s.effects(ctx) }); err != nil {
		return fmt.Errorf("-count-url %s, -count-field %s: %w", s.o.countURL, s.o.countField, err)
	}
	if s.o.tokenURL != "" {
		if err := attempt(func() { s.issue(ctx, field{}) }); err != nil {
			return fmt.Errorf("-token-url %s, -token-field %s: %w", s.o.tokenURL, s.o.tokenField, err)
		}
	}
	return nil
}

// newKey is a key that was never used: made up, or issued by a server that takes no others.
func (s *suite) newKey(ctx context.Context) string {
	if s.o.issued() {
		return s.issue(ctx, field{})
	}
	return "ck-" + strings.ToLower(rand.Text())
}

// quoted is a key as it stands in its header field.
func (s *suite) quoted(key string) string {
	if s.o.issued() {
		return key
	}
	return `"` + key + `"`
}

func (s *suite) request(key string) request {
	return request{
		url: s.o.at(s.o.path), method: s.o.method, contentType: s.o.contentType, body: s.o.body,
		keyHeader: s.o.header, keys: []string{s.quoted(key)}, extra: s.o.extra,
	}
}

// slow is a request that keeps the handler busy for a while.
func (s *suite) slow(key string) request {
	r := s.request(key)
	if s.o.slowBody != "" {
		r.body = s.o.slowBody
	}
	return r.with(s.o.slowHeader)
}

// first sends a request with a key of its own, which has to succeed.
func (s *suite) first(ctx context.Context, r request) answer {
	a := s.send(ctx, r)
	if !a.ok() {
		failf(a, "a 2xx: the key is new")
	}
	return a
}

// fresh sends the first request with its key: it has to succeed, and not to be a replay.
func (s *suite) fresh(ctx context.Context, r request, since string) answer {
	a := s.patiently(ctx, r)
	if !a.ok() || s.marked(a) {
		failf(a, "a 2xx that is no replay: %s must not use up its key", since)
	}
	return a
}

// marked says whether an answer calls itself a replay.
func (s *suite) marked(a answer) bool {
	return s.o.marker != field{} && strings.EqualFold(a.header.Get(s.o.marker.name), s.o.marker.value)
}

// again sends a request again until the first attempt is over; the answer has to be the first one.
func (s *suite) again(ctx context.Context, first answer) answer {
	return s.repeated(ctx, first.request, first)
}

// repeated is again for a request that has to count as the first one.
func (s *suite) repeated(ctx context.Context, r request, first answer) answer {
	a := s.patiently(ctx, r)
	a.mustBe(first)
	return a
}

func (a answer) mustBe(first answer) {
	if !a.same(first) {
		failf(a, "the first answer: %s", first)
	}
}

func (a answer) same(first answer) bool {
	return a.status == first.status && string(a.body) == string(first.body) &&
		a.header.Get("Content-Type") == first.header.Get("Content-Type")
}

// pause lies between two looks at a running attempt. Retry-After, in whole seconds, is too long.
const pause = 25 * time.Millisecond

// patiently sends a request until it is not in progress any more.
func (s *suite) patiently(ctx context.Context, r request) answer {
	enough := time.Now().Add(s.o.wait)
	for {
		a := s.send(ctx, r)
		if !s.isBusy(a) {
			return a
		}
		if time.Now().After(enough) {
			failf(a, "the end of the first attempt within %v (-wait)", s.o.wait)
		}
		end(sleep(ctx, pause))
	}
}

// isBusy says whether a refusal tells that the first attempt is in progress.
func (s *suite) isBusy(a answer) bool { return a.status == http.StatusConflict && !s.isUnknown(a) }

// isUnknown says whether a refusal tells that the outcome of the first attempt is unknown.
func (s *suite) isUnknown(a answer) bool {
	if a.status != http.StatusConflict && a.status != http.StatusServiceUnavailable {
		return false
	}
	problem := a.object()
	for _, member := range []string{"type", "code"} {
		if text, ok := problem[member].(string); ok && s.o.unknown.MatchString(text) {
			return true
		}
	}
	return false
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return errors.Join(errors.New("interrupted"), context.Cause(ctx))
	case <-time.After(d):
		return nil
	}
}
