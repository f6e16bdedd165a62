package main

import (
	"context"
	"net/http"
	"slices"
	"strings"
)

// repeat sends an operation and its repeat, and returns both answers.
func (s *suite) repeat(ctx context.Context) (first, again answer, err error) {
	if first, err = s.operation(ctx); err != nil {
		return first, again, err
	}
	again, err = s.again(ctx, first)
	return first, again, err
}

func replayEqual(ctx context.Context, s *suite) error {
	key, err := s.newKey(ctx)
	if err != nil {
		return err
	}
	r := s.request(key)
	if err := s.twice(ctx, r, r); err != nil {
		return err
	}
	return s.twiceMore(ctx, r)
}

// twiceMore repeats an operation whose answer is there: nothing is run any more.
func (s *suite) twiceMore(ctx context.Context, r request) error {
	e, err := s.effects(ctx)
	if err != nil {
		return err
	}
	first, err := s.first(ctx, r)
	if err != nil {
		return err
	}
	a, err := s.again(ctx, first)
	if err != nil {
		return err
	}
	return e.moved(ctx, 0, a)
}

// replayAtOnce sends the repeat when the head of the first answer is there and its body may still
// be on its way.
func replayAtOnce(ctx context.Context, s *suite) error {
	const rounds = 10
	for range rounds {
		key, err := s.newKey(ctx)
		if err != nil {
			return err
		}
		if err := s.repeatEarly(ctx, s.request(key)); err != nil {
			return err
		}
	}
	return nil
}

func (s *suite) repeatEarly(ctx context.Context, r request) error {
	e, err := s.effects(ctx)
	if err != nil {
		return err
	}
	within, cancel := context.WithTimeout(ctx, s.o.timeout)
	defer cancel()
	response, err := s.open(within, r, strings.NewReader(r.body))
	if err != nil {
		return err
	}
	defer response.Body.Close()
	a, err := s.send(ctx, r)
	if err != nil {
		return err
	}
	first, err := read(r, response)
	if err != nil {
		return err
	}
	if !first.ok() {
		return fail(first, "a 2xx: the key is new")
	}
	if err := same(a, first); err != nil {
		return err
	}
	return e.moved(ctx, 1, a)
}

func replayMarker(ctx context.Context, s *suite) error {
	first, again, err := s.repeat(ctx)
	if err != nil {
		return err
	}
	if s.marked(first) {
		return fail(first, "no %s: this is the first answer", s.o.marker.name)
	}
	if !s.marked(again) {
		return fail(again, "%s: this is a replay", s.o.marker.String())
	}
	return nil
}

func replayCookies(ctx context.Context, s *suite) error {
	first, again, err := s.repeat(ctx)
	if err != nil {
		return err
	}
	cookies := first.header.Values("Set-Cookie")
	if len(cookies) == 0 {
		return notApplicable("the handler sets no cookie: -body or -H could make it")
	}
	for _, cookie := range again.header.Values("Set-Cookie") {
		if slices.Contains(cookies, cookie) {
			return fail(again, "no Set-Cookie of the first answer")
		}
	}
	return nil
}

// replayHops reads the head of the first answer from the connection: net/http keeps Connection for
// itself.
func replayHops(ctx context.Context, s *suite) error {
	key, err := s.newKey(ctx)
	if err != nil {
		return err
	}
	r := s.request(key)
	first, err := s.head(ctx, r)
	if err != nil {
		return err
	}
	hops := hopByHop(first)
	if len(hops) == 0 {
		return notApplicable("the handler names no header in Connection: -body or -H could make it")
	}
	a, err := s.patiently(ctx, r)
	if err != nil {
		return err
	}
	for _, name := range hops {
		if a.header.Get(name) == first.Get(name) {
			return fail(a, "no %s: Connection named it in the first answer", name)
		}
	}
	return nil
}

// hopByHop lists the headers of an answer that its Connection header names.
func hopByHop(header http.Header) (names []string) {
	for _, connection := range header.Values("Connection") {
		for name := range strings.SplitSeq(connection, ",") {
			if name = strings.TrimSpace(name); name != "" && header.Get(name) != "" {
				names = append(names, name)
			}
		}
	}
	return names
}

// errorReplayed takes the marker for evidence where there is no count: errors may look alike.
func errorReplayed(ctx context.Context, s *suite) error {
	key, err := s.newKey(ctx)
	if err != nil {
		return err
	}
	r := s.request(key).with(s.o.errorHeader)
	if s.o.errorBody != "" {
		r.body = s.o.errorBody
	}
	first, err := s.send(ctx, r)
	if err != nil {
		return err
	}
	if first.status < http.StatusBadRequest {
		return notApplicable("-error-header or -error-body did not make the handler fail: " + first.String())
	}
	e, err := s.effects(ctx)
	if err != nil {
		return err
	}
	a, err := s.again(ctx, first)
	if err != nil {
		return err
	}
	if !s.counts() && s.o.marker != (field{}) && !s.marked(a) {
		return fail(a, "%s: the error has to be replayed", s.o.marker.String())
	}
	return e.moved(ctx, 0, a)
}
