package apitest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// Exchange is a request and its answer, as they went over the wire.
type Exchange struct {
	Method, Target string // the path and the query, as they were written
	Header         http.Header
	Body           []byte
	BodyUnknown    bool // it was not read to its end: nothing is said of it

	Status        int
	AnswerHeader  http.Header
	Answer        []byte
	AnswerUnknown bool // it was cut off, or is a stream
}

// Known reports whether the document has the path.
func (c *Contract) Known(target string) bool {
	path, _, _ := strings.Cut(target, "?")
	return c.find(path) != nil
}

// Check tells every way in which an exchange is not as the document says; nil if there is none.
func (c *Contract) Check(e Exchange) error {
	path, query, _ := strings.Cut(e.Target, "?")
	found := c.find(path)
	if found == nil || found.operations[e.Method] == nil {
		return c.checkStranger(e, found)
	}
	o := found.operations[e.Method]
	about := func(err error) error {
		if err == nil {
			return nil
		}
		return fmt.Errorf("%s, answered %d: %w", o.name, e.Status, err)
	}
	documented, ok := o.answers[e.Status]
	if !ok && found.optional && e.Status == http.StatusNotFound {
		return c.checkStranger(e, found)
	}
	if !ok {
		return about(fmt.Errorf("the document has no such status here: %.300s", e.Answer))
	}
	faults := []error{c.checkAnswer(documented, e)}
	if e.Status < http.StatusMultipleChoices {
		faults = append(faults, o.checkRequest(e, found.values(path), query))
	}
	return about(errors.Join(faults...))
}

// find is the route of a path: what is fixed goes before what is not, as in the routes' order.
func (c *Contract) find(path string) *route {
	segments := strings.Split(path, "/")
	for _, r := range c.routes {
		if r.fits(segments) {
			return r
		}
	}
	return nil
}

// fits reports whether a path is of this route. The server takes an empty segment for a parameter
// that is none, but for the last.
func (r *route) fits(segments []string) bool {
	if len(segments) != len(r.segments) {
		return false
	}
	for i, segment := range segments {
		varies := strings.HasPrefix(r.segments[i], "{")
		if !varies && segment != r.segments[i] || varies && segment == "" && i == len(segments)-1 {
			return false
		}
	}
	return true
}

func (r *route) values(path string) map[string]string {
	values := map[string]string{}
	for i, segment := range strings.Split(path, "/") {
		if name, varies := strings.CutPrefix(r.segments[i], "{"); varies {
			values[strings.TrimSuffix(name, "}")] = segment
		}
	}
	return values
}

// strangers are the answers to what is no operation.
var strangers = map[int]string{
	http.StatusNotFound: "NotFound", http.StatusMethodNotAllowed: "NoMethod", http.StatusRequestEntityTooLarge: "TooLarge",
	http.StatusInternalServerError: "Internal",
	http.StatusTooManyRequests:     "TooMany", http.StatusUnsupportedMediaType: "Encoded", http.StatusForbidden: "Forbidden",
}

// checkStranger looks at the answer to a path or a method that the document does not have.
func (c *Contract) checkStranger(e Exchange, known *route) error {
	name, ok := strangers[e.Status]
	if e.Method == http.MethodOptions && e.Status == http.StatusNoContent {
		name, ok = "Options", known != nil
	}
	if !ok || known == nil && name == "NoMethod" {
		return fmt.Errorf("%s %.80s is not in the document and was answered %d: %.300s", e.Method, e.Target, e.Status, e.Answer)
	}
	if err := c.checkAnswer(c.answer("/components/responses/"+name, c.Document.Components.Responses[name].Value), e); err != nil {
		return fmt.Errorf("%s %.80s, answered %d: %w", e.Method, e.Target, e.Status, err)
	}
	return nil
}

func (c *Contract) checkAnswer(documented *answer, e Exchange) error {
	return errors.Join(c.checkHeaders(documented, e.AnswerHeader), checkContent(documented, e), checkProblem(e))
}

// ofTheConnection are headers that are not the interface's business.
var ofTheConnection = []string{"Connection", "Content-Length", "Content-Type", "Date", "Keep-Alive", "Trailer", "Transfer-Encoding"}

func (c *Contract) checkHeaders(documented *answer, found http.Header) error {
	var faults []error
	for name, values := range found {
		expected, ok := documented.headers[name]
		if !ok {
			expected.value, ok = c.anywhere[name]
		}
		switch {
		case slices.Contains(ofTheConnection, name):
		case !ok:
			faults = append(faults, fmt.Errorf("header %s is not in the document: %.100q", name, values))
		case len(values) != 1 && name != "Vary": // which is a list
			faults = append(faults, fmt.Errorf("header %s came %d times", name, len(values)))
		default:
			if err := expected.value.checkText(strings.Join(values, ", ")); err != nil {
				faults = append(faults, fmt.Errorf("header %s: %w", name, err))
			}
		}
	}
	for name, expected := range documented.headers {
		if expected.required && len(found.Values(name)) == 0 {
			faults = append(faults, fmt.Errorf("header %s is missing", name))
		}
	}
	return errors.Join(faults...)
}

func checkContent(documented *answer, e Exchange) error {
	media := e.AnswerHeader.Get("Content-Type")
	expected, ok := documented.contents[media]
	switch {
	case len(documented.contents) == 0 && len(e.Answer) > 0:
		return fmt.Errorf("there is a body: %.100q", e.Answer)
	case len(documented.contents) == 0:
		return nil
	case !ok:
		return fmt.Errorf("media type %q is not in the document: %.100q", media, e.Answer)
	case e.Method == http.MethodHead || e.AnswerUnknown:
		return nil
	}
	if err := expected.checkBody(media, e.Answer); err != nil {
		return fmt.Errorf("body: %w: %.300s", err, e.Answer)
	}
	return nil
}

// checkProblem compares a problem with the answer around it, which no schema can.
func checkProblem(e Exchange) error {
	if e.AnswerHeader.Get("Content-Type") != "application/problem+json" || e.Method == http.MethodHead || e.AnswerUnknown {
		return nil
	}
	var problem struct {
		Type     string `json:"type"`
		Instance string `json:"instance"`
		Code     string `json:"code"`
		Status   int    `json:"status"`
	}
	if err := json.Unmarshal(e.Answer, &problem); err != nil {
		return fmt.Errorf("problem: %w", err)
	}
	// then it tells of the first request
	replayed := e.AnswerHeader.Get("Idempotent-Replayed") != ""
	if problem.Status != e.Status || problem.Type != "/problems/"+problem.Code || !replayed && problem.Instance != "urn:request:"+
		e.AnswerHeader.Get("X-Request-Id") {
		return fmt.Errorf("the problem does not fit its answer: %.300s", e.Answer)
	}
	return nil
}

// checkRequest looks at a request that was answered as a good one.
func (o *operation) checkRequest(e Exchange, path map[string]string, rawQuery string) error {
	query, err := url.ParseQuery(rawQuery)
	if err != nil && !o.anyQuery {
		return fmt.Errorf("query: %w", err)
	}
	faults := []error{o.checkBody(e)}
	known := map[string]bool{}
	for _, p := range o.parameters {
		var values []string
		switch p.in {
		case "path":
			decoded, err := url.PathUnescape(path[p.name])
			values, faults = []string{decoded}, append(faults, err)
		case "query":
			values, known[p.name] = query[p.name], true
		case "header":
			values = e.Header.Values(p.name)
		}
		faults = append(faults, p.check(values))
	}
	for name := range query {
		if !known[name] && !o.anyQuery {
			faults = append(faults, fmt.Errorf("query parameter %s is not in the document", name))
		}
	}
	return errors.Join(faults...)
}

func (p parameter) check(values []string) error {
	if len(values) == 0 && p.required {
		return fmt.Errorf("%s parameter %s is missing", p.in, p.name)
	}
	for _, text := range values {
		if p.name == "X-Request-Id" {
			continue // any is taken, and some are kept
		}
		if err := p.value.checkText(text); err != nil {
			return fmt.Errorf("%s parameter %s: %w", p.in, p.name, err)
		}
	}
	return nil
}

// checkBody looks at a request's body. Its stated media type does not count, as the document tells.
func (o *operation) checkBody(e Exchange) error {
	if o.body == nil || e.BodyUnknown {
		return nil
	}
	expected, ok := o.body.contents["application/json"]
	empty := len(bytes.TrimSpace(e.Body)) == 0
	switch {
	case empty && o.body.required:
		return errors.New("the request has no body")
	case empty || !ok:
		return nil
	}
	if err := expected.checkBody("application/json", e.Body); err != nil {
		return fmt.Errorf("request body: %w: %.300s", err, e.Body)
	}
	return nil
}
