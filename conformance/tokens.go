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

// issued is the caller's request with a new token.
func (s *suite) issued(ctx context.Context) (request, error) {
	token, err := s.issue(ctx, field{})
	return s.withToken(token), err
}

func tokenOnce(ctx context.Context, s *suite) error {
	r, err := s.issued(ctx)
	if err != nil {
		return err
	}
	if err := s.twice(ctx, r, r); err != nil {
		return err
	}
	return s.twiceMore(ctx, r)
}

func tokenBurst(ctx context.Context, s *suite) error {
	for range bursts {
		r, err := s.issued(ctx)
		if err != nil {
			return err
		}
		if err := s.burst(ctx, r); err != nil {
			return err
		}
	}
	return nil
}

// tokenMadeUp sends a text that has nothing of a token but its form, and a token with one character
// changed; each twice, since a server may remember what it has refused.
func tokenMadeUp(ctx context.Context, s *suite) error {
	token, err := s.issue(ctx, field{})
	if err != nil {
		return err
	}
	e, err := s.effects(ctx)
	if err != nil {
		return err
	}
	for _, text := range []string{madeUp(len(token)), changed(token)} {
		for range 2 {
			if err := s.turnedDown(ctx, e, s.withToken(text)); err != nil {
				return err
			}
		}
	}
	return nil
}

// turnedDown sends a token that is none to the one who sends it: any 4xx will do that is not about
// an operation under way.
func (s *suite) turnedDown(ctx context.Context, e effects, r request) error {
	a, err := s.send(ctx, r)
	if err != nil {
		return err
	}
	if a.status < http.StatusBadRequest || a.status >= http.StatusInternalServerError || a.status == http.StatusConflict {
		return fail(a, "410 or another 4xx, and nothing is run")
	}
	return e.moved(ctx, 0, a)
}

// madeUp is a random text of a token's length.
func madeUp(length int) string {
	var b strings.Builder
	for b.Len() < length {
		b.WriteString(strings.ToLower(rand.Text()))
	}
	return b.String()[:length]
}

// changed is a token with another character in its middle: the last one may not count, since it
// does not use all its bits.
func changed(token string) string {
	middle := len(token) / 2
	other := "A"
	if token[middle] == 'A' {
		other = "B"
	}
	return token[:middle] + other + token[middle+1:]
}

func tokenMismatch(ctx context.Context, s *suite) error {
	r, err := s.issued(ctx)
	if err != nil {
		return err
	}
	first, err := s.first(ctx, r)
	if err != nil {
		return err
	}
	e, err := s.effects(ctx)
	if err != nil {
		return err
	}
	if err := s.refused(ctx, e, s.other(r), http.StatusUnprocessableEntity); err != nil {
		return err
	}
	a, err := s.again(ctx, first)
	if err != nil {
		return err
	}
	return e.moved(ctx, 0, a)
}

// tokenOfAnother tries a token before its owner has used it, and after.
func tokenOfAnother(ctx context.Context, s *suite) error {
	token, err := s.issue(ctx, s.o.principalA)
	if err != nil {
		return err
	}
	mine, theirs := s.withToken(token).with(s.o.principalA), s.withToken(token).with(s.o.principalB)
	e, err := s.effects(ctx)
	if err != nil {
		return err
	}
	if err := s.turnedDown(ctx, e, theirs); err != nil {
		return err
	}
	first, err := s.fresh(ctx, mine, "another principal")
	if err != nil {
		return err
	}
	if e, err = s.effects(ctx); err != nil {
		return err
	}
	if err := s.turnedDown(ctx, e, theirs); err != nil {
		return err
	}
	a, err := s.again(ctx, first)
	if err != nil {
		return err
	}
	return e.moved(ctx, 0, a)
}

func tokensDiffer(ctx context.Context, s *suite) error {
	const many = 20
	seen := map[string]bool{}
	for range many {
		token, err := s.issue(ctx, field{})
		if err != nil {
			return err
		}
		if seen[token] {
			return &failure{"POST " + s.o.at(s.o.tokenURL), "a token that was issued before", "another one each time"}
		}
		seen[token] = true
	}
	return nil
}
