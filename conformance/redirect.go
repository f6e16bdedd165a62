package main

import (
	"context"
	"net/http"
	"net/url"
)

// redirected sends a request to the path that redirects.
func (s *suite) redirected(ctx context.Context, r request) (redirect answer, to *url.URL) {
	r.url = s.o.at(s.o.redirectPath)
	redirect = s.send(ctx, r)
	if redirect.status != http.StatusTemporaryRedirect && redirect.status != http.StatusPermanentRedirect {
		failf(redirect, "307 or 308, as -redirect-path says")
	}
	from, err := url.Parse(r.url)
	end(err)
	to, err = from.Parse(redirect.header.Get("Location"))
	if err != nil || redirect.header.Get("Location") == "" {
		failf(redirect, "a Location that leads on")
	}
	return redirect, to
}

// redirectFollowed goes twice from the redirect to where it leads, as a client does that follows
// it: with the same key, method and payload. It stays at the server that was told. The second time
// the answer may come at once, where a guard takes both paths for one; or 422, where a guard has
// one key space for both, and the path is part of what it compares.
func redirectFollowed(ctx context.Context, s *suite) {
	e := s.effects(ctx)
	r := s.request(s.newKey(ctx))
	follow := func() request {
		redirect, to := s.redirected(ctx, r)
		if s.marked(redirect) {
			failf(redirect, "a redirect that is no replay: it says that the request is to be sent elsewhere, and nothing else")
		}
		next := r
		next.url = s.o.base.Scheme + "://" + s.o.base.Host + to.RequestURI()
		return next
	}
	first := s.first(ctx, follow())
	e.moved(ctx, 1, first)
	r.url = s.o.at(s.o.redirectPath)
	again := s.send(ctx, r)
	if again.status == http.StatusTemporaryRedirect || again.status == http.StatusPermanentRedirect {
		again = s.repeated(ctx, follow(), first)
	}
	if again.status != http.StatusUnprocessableEntity {
		again.mustBe(first) // at once, where both paths are one route
	}
	e.moved(ctx, 1, again)
}

// redirectInside looks where a redirect leads: past a gateway to the server behind it, say, where
// nothing is guarded.
func redirectInside(ctx context.Context, s *suite) {
	redirect, to := s.redirected(ctx, s.request(s.newKey(ctx)))
	if to.Host != s.o.base.Host || to.Scheme != s.o.base.Scheme {
		failf(redirect, "a Location at %s://%s", s.o.base.Scheme, s.o.base.Host)
	}
}
