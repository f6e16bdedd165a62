package main

import (
	"context"
	"crypto/rand"
	"net/http"
	"strings"
)

// withToken is the caller's request with an issued token in place of a key.
func (s *suite) withToken(token string) request {
	r := s.request("")
	r.keyHeader = s.o.tokenHeader
	return r.keyed(token)
}

func (s *suite) issued(ctx context.Context) request {
	return s.withToken(s.issue(ctx, field{}))
}

func tokenOnce(ctx context.Context, s *suite) {
	r := s.issued(ctx)
	s.twice(ctx, r, r)
	s.twiceMore(ctx, r)
}

// tokenAndKey sends a token twice, each time beside another key.
func tokenAndKey(ctx context.Context, s *suite) {
	e := s.effects(ctx)
	r := s.issued(ctx)
	const keyHeader = "Idempotency-Key" // of the draft
	first := s.first(ctx, r.with(field{keyHeader, `"` + rand.Text() + `"`}))
	again := s.repeated(ctx, r.with(field{keyHeader, `"` + rand.Text() + `"`}), first)
	e.moved(ctx, 1, again)
}

func tokenBurst(ctx context.Context, s *suite) {
	for range bursts {
		s.burst(ctx, s.issued(ctx))
	}
}

// tokenMadeUp sends a text that has nothing of a token but its form, and a token with one character
// changed; each twice, since a server may remember what it has refused.
func tokenMadeUp(ctx context.Context, s *suite) {
	token := s.issue(ctx, field{})
	e := s.effects(ctx)
	for _, text := range []string{madeUp(len(token)), changed(token)} {
		for range 2 {
			s.turnedDown(ctx, e, s.withToken(text))
		}
	}
}

// turnedDown sends a token that is none: any 4xx will do that is not about a running operation.
func (s *suite) turnedDown(ctx context.Context, e effects, r request) {
	a := s.send(ctx, r)
	if a.status < http.StatusBadRequest || a.status >= http.StatusInternalServerError || a.status == http.StatusConflict {
		failf(a, "410 or another 4xx, and nothing is run")
	}
	e.moved(ctx, 0, a)
}

func madeUp(length int) string {
	var b strings.Builder
	for b.Len() < length {
		b.WriteString(strings.ToLower(rand.Text()))
	}
	return b.String()[:length]
}

// changed is a token with another character in its middle: the last may not use all its bits.
func changed(token string) string {
	middle := len(token) / 2
	other := "A"
	if token[middle] == 'A' {
		other = "B"
	}
	return token[:middle] + other + token[middle+1:]
}

func tokenMismatch(ctx context.Context, s *suite) {
	r := s.issued(ctx)
	first := s.first(ctx, r)
	e := s.effects(ctx)
	s.refused(ctx, e, s.other(r), http.StatusUnprocessableEntity)
	e.moved(ctx, 0, s.again(ctx, first))
}

// tokenOfAnother tries a token before its owner has used it, and after.
func tokenOfAnother(ctx context.Context, s *suite) {
	token := s.issue(ctx, s.o.principalA)
	mine, theirs := s.withToken(token).with(s.o.principalA), s.withToken(token).with(s.o.principalB)
	e := s.effects(ctx)
	s.turnedDown(ctx, e, theirs)
	first := s.fresh(ctx, mine, "another principal")
	e = s.effects(ctx)
	s.turnedDown(ctx, e, theirs)
	e.moved(ctx, 0, s.again(ctx, first))
}

func tokensDiffer(ctx context.Context, s *suite) {
	const many = 20
	seen := map[string]bool{}
	for range many {
		token := s.issue(ctx, field{})
		if seen[token] {
			end(&failure{"POST " + s.o.at(s.o.tokenURL), "a token that was issued before", "another one each time"})
		}
		seen[token] = true
	}
}
