package main

import (
	"context"
	"mime"
	"net/http"
	"net/url"
	"regexp"
	"strings"
)

// missing is the refusal of a request without the header.
func (s *suite) missing(ctx context.Context) answer {
	return s.expect(ctx, s.request("").keyed(), http.StatusBadRequest)
}

// malformed is the refusal of a request with a header that is no key.
func (s *suite) malformed(ctx context.Context) answer {
	return s.expect(ctx, s.request("").keyed(`"no end`), http.StatusBadRequest)
}

// expect sends a request, which has to be refused with a status.
func (s *suite) expect(ctx context.Context, r request, status int) answer {
	a := s.send(ctx, r)
	if a.status != status {
		failf(a, "%d, and nothing is run", status)
	}
	return a
}

func missingLink(ctx context.Context, s *suite) {
	s.links(s.missing(ctx))
	s.links(s.malformed(ctx))
}

func missingProblem(ctx context.Context, s *suite) {
	isProblem(s.missing(ctx))
	isProblem(s.malformed(ctx))
}

func mismatchLink(ctx context.Context, s *suite) { s.links(s.mismatch(ctx)) }

func mismatchProblem(ctx context.Context, s *suite) { isProblem(s.mismatch(ctx)) }

// mismatch is the refusal of another payload.
func (s *suite) mismatch(ctx context.Context) answer {
	return s.expect(ctx, s.other(s.operation(ctx).request), http.StatusUnprocessableEntity)
}

// operation sends a request with a new key, which succeeds.
func (s *suite) operation(ctx context.Context) answer {
	return s.first(ctx, s.request(s.newKey(ctx)))
}

// other is the request with the other payload.
func (s *suite) other(r request) request {
	r.body = s.o.body2
	return r
}

func mismatchBody(ctx context.Context, s *suite) {
	first := s.operation(ctx)
	e := s.effects(ctx)
	s.refused(ctx, e, s.other(first.request), http.StatusUnprocessableEntity)
}

// mismatchQuery can only look where the path takes the query at all.
func mismatchQuery(ctx context.Context, s *suite) {
	control := s.request(s.newKey(ctx))
	control.query = s.o.query
	a := s.send(ctx, control)
	if !a.ok() {
		end(notApplicable("the path does not take -query " + s.o.query + ": " + a.String()))
	}
	e := s.effects(ctx)
	s.refused(ctx, e, s.request("").keyed(control.keys...), http.StatusUnprocessableEntity)
}

func mismatchKeeps(ctx context.Context, s *suite) {
	first := s.operation(ctx)
	e := s.effects(ctx)
	s.send(ctx, s.other(first.request)) // what it is answered is another check's
	e.moved(ctx, 0, s.again(ctx, first))
}

// isProblem looks at the form of a refusal.
func isProblem(a answer) {
	if media, _, err := mime.ParseMediaType(a.header.Get("Content-Type")); err != nil || media != "application/problem+json" {
		failf(a, "Content-Type: application/problem+json")
	}
	problem := a.object()
	if problem == nil {
		failf(a, "a JSON object")
	}
	if status, told := problem["status"].(float64); told && int(status) != a.status {
		failf(a, "the problem's status to be the answer's")
	}
	for _, member := range []string{"type", "title"} {
		if text, _ := problem[member].(string); text == "" {
			failf(a, "a problem with a %s", member)
		}
	}
}

// links looks for a link in a refusal: to the policy that the caller named, or to anywhere.
func (s *suite) links(a answer) {
	targets := linksOf(a)
	if s.o.policy == "" {
		if len(targets) == 0 {
			failf(a, `a link: Link: <…>; rel="describedby", or a URL in the problem's body`)
		}
		return
	}
	base, err := url.Parse(a.request.url)
	end(err)
	for _, target := range targets {
		if resolved, err := base.Parse(target); err == nil && resolved.String() == s.o.at(s.o.policy) {
			return
		}
	}
	failf(a, "a link to %s, in a Link header or in the problem's body", s.o.policy)
}

var (
	linkTarget = regexp.MustCompile(`<([^>]*)>`)
	plainURL   = regexp.MustCompile(`https?://[^\s"'<>]+`)
)

// linksOf collects what a refusal links to: the targets of its Link headers, and the members of its
// body that hold a URL or a path. instance names this one refusal and explains nothing.
func linksOf(a answer) (targets []string) {
	for _, header := range a.header.Values("Link") {
		for _, found := range linkTarget.FindAllStringSubmatch(header, -1) {
			targets = append(targets, found[1])
		}
	}
	object := a.object()
	if object == nil {
		return append(targets, plainURL.FindAllString(string(a.body), -1)...)
	}
	delete(object, "instance")
	for _, value := range object {
		text, _ := value.(string)
		if strings.HasPrefix(text, "/") {
			targets = append(targets, text)
		}
		targets = append(targets, plainURL.FindAllString(text, -1)...)
	}
	return targets
}
