package main

import (
	"context"
	"net/http"
	"slices"
	"strings"
)

func (s *suite) repeat(ctx context.Context) (first, again answer) {
	first = s.operation(ctx)
	return first, s.again(ctx, first)
}

func replayEqual(ctx context.Context, s *suite) {
	r := s.request(s.newKey(ctx))
	s.twice(ctx, r, r)
	s.twiceMore(ctx, r)
}

// twiceMore repeats an operation whose answer is there: nothing is run any more.
func (s *suite) twiceMore(ctx context.Context, r request) {
	e := s.effects(ctx)
	e.moved(ctx, 0, s.again(ctx, s.first(ctx, r)))
}

// replayAtOnce sends the repeat when the first answer's head is there and its body may not be.
func replayAtOnce(ctx context.Context, s *suite) {
	const rounds = 10
	for range rounds {
		s.repeatEarly(ctx, s.request(s.newKey(ctx)))
	}
}

func (s *suite) repeatEarly(ctx context.Context, r request) {
	e := s.effects(ctx)
	within, cancel := context.WithTimeout(ctx, s.o.timeout)
	defer cancel()
	response, err := s.open(within, r, strings.NewReader(r.body))
	end(err)
	defer response.Body.Close()
	a := s.send(ctx, r)
	first, err := read(r, response)
	end(err)
	if !first.ok() {
		failf(first, "a 2xx: the key is new")
	}
	a.mustBe(first)
	e.moved(ctx, 1, a)
}

func replayMarker(ctx context.Context, s *suite) {
	first, again := s.repeat(ctx)
	if s.marked(first) {
		failf(first, "no %s: this is the first answer", s.o.marker.name)
	}
	if !s.marked(again) {
		failf(again, "%s: this is a replay", s.o.marker.String())
	}
}

func replayCookies(ctx context.Context, s *suite) {
	first, again := s.repeat(ctx)
	cookies := first.header.Values("Set-Cookie")
	if len(cookies) == 0 {
		end(notApplicable("the handler sets no cookie: -body or -H could make it"))
	}
	for _, cookie := range again.header.Values("Set-Cookie") {
		if slices.Contains(cookies, cookie) {
			failf(again, "no Set-Cookie of the first answer")
		}
	}
}

// replayHops reads the first answer's head from the connection: net/http hides Connection.
func replayHops(ctx context.Context, s *suite) {
	r := s.request(s.newKey(ctx))
	first := s.head(ctx, r)
	hops := hopByHop(first)
	if len(hops) == 0 {
		end(notApplicable("the handler names no header in Connection: -body or -H could make it"))
	}
	a := s.patiently(ctx, r)
	for _, name := range hops {
		if a.header.Get(name) == first.Get(name) {
			failf(a, "no %s: Connection named it in the first answer", name)
		}
	}
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
func errorReplayed(ctx context.Context, s *suite) {
	r := s.request(s.newKey(ctx)).with(s.o.errorHeader)
	if s.o.errorBody != "" {
		r.body = s.o.errorBody
	}
	first := s.send(ctx, r)
	if first.status < http.StatusBadRequest {
		end(notApplicable("-error-header or -error-body did not make the handler fail: " + first.String()))
	}
	e := s.effects(ctx)
	a := s.again(ctx, first)
	if !s.counts() && s.o.marker != (field{}) && !s.marked(a) {
		failf(a, "%s: the error has to be replayed", s.o.marker.String())
	}
	e.moved(ctx, 0, a)
}
