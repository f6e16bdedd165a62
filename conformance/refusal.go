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
func (s *suite) missing(ctx context.Context) (answer, error) {
	a, err := s.send(ctx, s.request("").keyed())
	return a, expect(a, err, http.StatusBadRequest)
}

// malformed is the refusal of a request with a header that is no key.
func (s *suite) malformed(ctx context.Context) (answer, error) {
	a, err := s.send(ctx, s.request("").keyed(`"no end`))
	return a, expect(a, err, http.StatusBadRequest)
}

// expect is the failure of an answer that has another status, unless there is an error already.
func expect(a answer, err error, status int) error {
	if err == nil && a.status != status {
		err = fail(a, "%d", status)
	}
	return err
}

// each looks at several answers and finds the first fault.
func each(ctx context.Context, look func(answer) error, answers ...func(context.Context) (answer, error)) error {
	for _, get := range answers {
		a, err := get(ctx)
		if err != nil {
			return err
		}
		if err := look(a); err != nil {
			return err
		}
	}
	return nil
}

func missingLink(ctx context.Context, s *suite) error {
	return each(ctx, s.links, s.missing, s.malformed)
}

func missingProblem(ctx context.Context, s *suite) error {
	return each(ctx, isProblem, s.missing, s.malformed)
}

func mismatchLink(ctx context.Context, s *suite) error { return each(ctx, s.links, s.mismatch) }

func mismatchProblem(ctx context.Context, s *suite) error { return each(ctx, isProblem, s.mismatch) }

// mismatch is the refusal of another payload.
func (s *suite) mismatch(ctx context.Context) (answer, error) {
	first, err := s.operation(ctx)
	if err != nil {
		return answer{}, err
	}
	a, err := s.send(ctx, s.other(first.request))
	return a, expect(a, err, http.StatusUnprocessableEntity)
}

// operation sends a request with a new key, which succeeds.
func (s *suite) operation(ctx context.Context) (answer, error) {
	key, err := s.newKey(ctx)
	if err != nil {
		return answer{}, err
	}
	return s.first(ctx, s.request(key))
}

// other is the request with the other payload.
func (s *suite) other(r request) request {
	r.body = s.o.body2
	return r
}

func mismatchBody(ctx context.Context, s *suite) error {
	first, err := s.operation(ctx)
	if err != nil {
		return err
	}
	e, err := s.effects(ctx)
	if err != nil {
		return err
	}
	return s.refused(ctx, e, s.other(first.request), http.StatusUnprocessableEntity)
}

// mismatchQuery can only look where the path takes the query at all.
func mismatchQuery(ctx context.Context, s *suite) error {
	key, err := s.newKey(ctx)
	if err != nil {
		return err
	}
	control := s.request(key)
	control.query = s.o.query
	a, err := s.send(ctx, control)
	if err != nil {
		return err
	}
	if !a.ok() {
		return notApplicable("the path does not take -query " + s.o.query + ": " + a.String())
	}
	e, err := s.effects(ctx)
	if err != nil {
		return err
	}
	return s.refused(ctx, e, s.request("").keyed(control.keys...), http.StatusUnprocessableEntity)
}

func mismatchKeeps(ctx context.Context, s *suite) error {
	first, err := s.operation(ctx)
	if err != nil {
		return err
	}
	e, err := s.effects(ctx)
	if err != nil {
		return err
	}
	// what it is answered is another check's
	if _, err := s.send(ctx, s.other(first.request)); err != nil {
		return err
	}
	a, err := s.again(ctx, first)
	if err != nil {
		return err
	}
	return e.moved(ctx, 0, a)
}

// isProblem looks at the form of a refusal.
func isProblem(a answer) error {
	if media, _, err := mime.ParseMediaType(a.header.Get("Content-Type")); err != nil || media != "application/problem+json" {
		return fail(a, "Content-Type: application/problem+json")
	}
	problem := a.object()
	if problem == nil {
		return fail(a, "a JSON object")
	}
	if status, told := problem["status"].(float64); told && int(status) != a.status {
		return fail(a, "the problem's status to be the answer's")
	}
	for _, member := range []string{"type", "title"} {
		if text, _ := problem[member].(string); text == "" {
			return fail(a, "a problem with a %s", member)
		}
	}
	return nil
}

// links looks for a link in a refusal: to the policy that the caller named, or to anywhere.
func (s *suite) links(a answer) error {
	targets := linksOf(a)
	if s.o.policy == "" {
		if len(targets) == 0 {
			return fail(a, `a link: Link: <…>; rel="describedby", or a URL in the problem's body`)
		}
		return nil
	}
	base, err := url.Parse(a.request.url)
	if err != nil {
		return err
	}
	for _, target := range targets {
		if resolved, err := base.Parse(target); err == nil && resolved.String() == s.o.at(s.o.policy) {
			return nil
		}
	}
	return fail(a, "a link to %s, in a Link header or in the problem's body", s.o.policy)
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
