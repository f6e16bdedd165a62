package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

type request struct {
	url, query  string
	method      string
	contentType string
	body        string
	keyHeader   string
	keys        []string // the fields of that header, nil = none
	extra       []field
}

// with returns the request with one header more or replaced. No header changes nothing.
func (r request) with(header field) request {
	if header != (field{}) {
		r.extra = slices.DeleteFunc(slices.Clone(r.extra), func(f field) bool { return strings.EqualFold(f.name, header.name) })
		r.extra = append(r.extra, header)
	}
	return r
}

// keyed returns the request with these fields of the key's header in place of others.
func (r request) keyed(fields ...string) request {
	r.keys = fields
	return r
}

func (r request) target() string {
	switch {
	case r.query == "":
		return r.url
	case strings.Contains(r.url, "?"):
		return r.url + "&" + r.query
	}
	return r.url + "?" + r.query
}

// String says the request in a line of a report, with the names alone of the caller's headers.
func (r request) String() string {
	var b strings.Builder
	b.WriteString(r.method + " " + r.target())
	for _, key := range r.keys {
		b.WriteString(", " + r.keyHeader + ": " + short(key))
	}
	for _, header := range r.extra {
		b.WriteString(", " + header.name + ": …")
	}
	if r.body != "" {
		b.WriteString(", body " + short(r.body))
	}
	return b.String()
}

type answer struct {
	request request
	status  int
	header  http.Header
	body    []byte
}

func (a answer) ok() bool { return a.status >= 200 && a.status < 300 }

// String says the answer in a line of a report.
func (a answer) String() string {
	var b strings.Builder
	b.WriteString(strconv.Itoa(a.status))
	for _, name := range []string{"Content-Type", "Retry-After", "Link", "Idempotent-Replayed"} {
		if value := a.header.Get(name); value != "" {
			b.WriteString(", " + name + ": " + value)
		}
	}
	b.WriteString(", body " + short(string(a.body)))
	return b.String()
}

// object is the answer's body as a JSON object; nil if it is none.
func (a answer) object() (object map[string]any) {
	if json.Unmarshal(a.body, &object) != nil {
		return nil
	}
	return object
}

// short is a text that fits in a report: in one line, and not long.
func short(text string) string {
	const limit = 160
	runes := []rune(strings.TrimSpace(text))
	if len(runes) > limit {
		runes = append(runes[:limit], '…')
	}
	return strings.Join(strings.Fields(string(runes)), " ")
}

// agent is how the suite calls itself.
const agent = "coatcheck-conformance"

// newClient returns a client that sends each request on a connection of its own and never sends one
// twice: net/http repeats a request that carries an Idempotency-Key when a connection that was used
// before breaks. HTTP/2 would share a connection.
func newClient(trust *tls.Config) *http.Client {
	var http1 http.Protocols
	http1.SetHTTP1(true)
	return &http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true, DisableCompression: true, Protocols: &http1, TLSClientConfig: trust},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// send sends a request and reads the answer. Without one it ends the check.
func (s *suite) send(ctx context.Context, r request) answer {
	a, err := s.try(ctx, r, strings.NewReader(r.body))
	end(err)
	return a
}

// try is send for any goroutine, with a reader that gives the body when it likes.
func (s *suite) try(ctx context.Context, r request, body io.Reader) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, s.o.timeout)
	defer cancel()
	response, err := s.open(ctx, r, body)
	if err != nil {
		return answer{request: r}, err
	}
	defer response.Body.Close()
	return read(r, response)
}

// open sends a request and waits for the head of the answer.
func (s *suite) open(ctx context.Context, r request, body io.Reader) (*http.Response, error) {
	if r.body == "" {
		body = http.NoBody
	}
	// where to send it is the caller's to say: that is what the suite is for
	outgoing, err := http.NewRequestWithContext(ctx, r.method, r.target(), body) //nolint:gosec // as above
	if err != nil {
		return nil, noAnswer(r, err)
	}
	outgoing.ContentLength = int64(len(r.body))
	outgoing.Header.Set("User-Agent", agent)
	if r.body != "" {
		outgoing.Header.Set("Content-Type", r.contentType)
	}
	for _, header := range r.extra {
		outgoing.Header.Add(header.name, header.value)
	}
	for _, key := range r.keys {
		outgoing.Header.Add(r.keyHeader, key)
	}
	response, err := s.client.Do(outgoing) //nolint:gosec // as above
	if err == nil && response.StatusCode == http.StatusSwitchingProtocols {
		_ = response.Body.Close() // no timeout ends a read of it
		err = errors.New("it switches to another protocol")
	}
	if err != nil {
		return nil, noAnswer(r, err)
	}
	return response, nil
}

func read(r request, response *http.Response) (answer, error) {
	const limit = 16 << 20
	body, err := io.ReadAll(io.LimitReader(response.Body, limit))
	if err != nil {
		return answer{request: r}, noAnswer(r, err)
	}
	return answer{r, response.StatusCode, response.Header, bytes.Clone(body)}, nil
}

func noAnswer(r request, err error) error {
	return &failure{r.String(), fmt.Sprintf("no answer: %v", err), "an answer"}
}
