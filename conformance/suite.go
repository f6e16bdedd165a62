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
	key, err := s.newKey(ctx)
	if err != nil {
		return fmt.Errorf("no token from %s: %w", s.o.tokenURL, err)
	}
	a, err := s.send(ctx, s.request(key))
	if err != nil {
		return fmt.Errorf("the server is not reachable: %w", err)
	}
	if !a.ok() {
		return fmt.Errorf("%s was answered %s: set -method, -path, -body, -content-type and -H so that a request with a new key succeeds", a.request, a)
	}
	if _, err := s.effects(ctx); err != nil {
		return fmt.Errorf("-count-url %s, -count-field %s: %w", s.o.countURL, s.o.countField, err)
	}
	if s.o.tokenURL != "" {
		if _, err := s.issue(ctx, field{}); err != nil {
			return fmt.Errorf("-token-url %s, -token-field %s: %w", s.o.tokenURL, s.o.tokenField, err)
		}
	}
	return nil
}

// newKey is a key that was never used: one made up, or a token that the server issues where it
// takes no others.
func (s *suite) newKey(ctx context.Context) (string, error) {
	if s.o.issued() {
		return s.issue(ctx, field{})
	}
	return "ck-" + strings.ToLower(rand.Text()), nil
}

// quoted is a key as it stands in its header field.
func (s *suite) quoted(key string) string {
	if s.o.issued() {
		return key
	}
	return `"` + key + `"`
}

// request is the caller's request, with a key.
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
func (s *suite) first(ctx context.Context, r request) (answer, error) {
	a, err := s.send(ctx, r)
	if err == nil && !a.ok() {
		err = fail(a, "a 2xx: the key is new")
	}
	return a, err
}

// fresh sends a request that has to be the first one with its key: it succeeds, and its answer is
// no replay.
func (s *suite) fresh(ctx context.Context, r request, since string) (answer, error) {
	a, err := s.patiently(ctx, r)
	if err == nil && (!a.ok() || s.marked(a)) {
		err = fail(a, "a 2xx that is no replay: %s must not use up its key", since)
	}
	return a, err
}

// marked says whether an answer calls itself a replay.
func (s *suite) marked(a answer) bool {
	return s.o.marker != field{} && strings.EqualFold(a.header.Get(s.o.marker.name), s.o.marker.value)
}

// again sends a request again until the first attempt is over; the answer has to be the first one.
func (s *suite) again(ctx context.Context, first answer) (answer, error) {
	a, err := s.patiently(ctx, first.request)
	if err == nil {
		err = same(a, first)
	}
	return a, err
}

// same says whether an answer is the one that was given before.
func same(a, first answer) error {
	if a.status != first.status || string(a.body) != string(first.body) || a.header.Get("Content-Type") != first.header.Get("Content-Type") {
		return fail(a, "the first answer: %s", first)
	}
	return nil
}

// pause lies between two looks at an attempt that is in progress. Retry-After counts whole seconds,
// which is too long for a suite.
const pause = 25 * time.Millisecond

// patiently sends a request until it is not in progress any more.
func (s *suite) patiently(ctx context.Context, r request) (answer, error) {
	enough := time.Now().Add(s.o.wait)
	for {
		a, err := s.send(ctx, r)
		if err != nil || a.status != http.StatusConflict || s.isUnknown(a) {
			return a, err
		}
		if time.Now().After(enough) {
			return a, fail(a, "the end of the first attempt within %v (-wait)", s.o.wait)
		}
		if err := sleep(ctx, pause); err != nil {
			return a, err
		}
	}
}

// isUnknown says whether a refusal tells that the outcome of the first attempt is unknown.
func (s *suite) isUnknown(a answer) bool {
	if a.status != http.StatusConflict && a.status != http.StatusServiceUnavailable {
		return false
	}
	problem := a.object()
	for _, member := range []string{"type", "code"} {
		if text, ok := problem[member].(string); ok && s.o.unknown.matches(text, false) {
			return true
		}
	}
	return false
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return errors.Join(errors.New("interrupted"), context.Cause(ctx))
	case <-timer.C:
		return nil
	}
}
