package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"time"

	"github.com/coatcheck/coatcheck/idempotency"
	"github.com/coatcheck/coatcheck/internal/frontdoor"
	"github.com/coatcheck/coatcheck/internal/names"
	"github.com/coatcheck/coatcheck/internal/noupgrade"
	"github.com/coatcheck/coatcheck/internal/yamlfile"
)

// Ask is a service that says who sends a request. It gets the request's header, as with nginx's
// auth_request, and names the caller in a header of its answer.
type Ask struct {
	URL    string
	Header string // such as X-User-Id
}

// askTimeout is how long the service may take.
const askTimeout = 5 * time.Second

func (a *Ask) fields() yamlfile.Fields {
	return yamlfile.Fields{"url": yamlfile.Text(&a.URL), "header": yamlfile.Text(&a.Header)}
}

func (a *Ask) check() error {
	at, err := url.Parse(a.URL)
	if err != nil || at.Scheme != "http" && at.Scheme != "https" || at.Host == "" || at.User != nil || at.Fragment != "" {
		return errors.New("url: a URL such as http://auth.internal/verify belongs here, without a password")
	}
	if !names.Header.MatchString(a.Header) {
		return errors.New("header: the name of a header of the service's answer belongs here, such as X-User-Id")
	}
	return nil
}

// askClient asks such services. It follows no redirect, as to a login.
var askClient = &http.Client{
	Timeout: askTimeout,
	Transport: noupgrade.Transport{
		Next: &http.Transport{MaxIdleConnsPerHost: 64, IdleConnTimeout: time.Second, DisableCompression: true},
	},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// askedBy returns what asks a service who sends a request. A caller whom it does not name is
// refused, as is every caller while it does not answer.
func (g *Gateway) askedBy(a Ask) func(*http.Request) (string, error) {
	return func(r *http.Request) (string, error) {
		ctx, cancel := context.WithTimeout(r.Context(), askTimeout)
		defer cancel()
		question, err := http.NewRequestWithContext(ctx, http.MethodGet, a.URL, http.NoBody)
		if err != nil {
			return "", fmt.Errorf("%w: %w", idempotency.ErrNoKeys, err)
		}
		g.describe(r, question)
		answer, err := askClient.Do(question)
		if err != nil {
			return "", fmt.Errorf("%w: the service that names callers does not answer: %w", idempotency.ErrNoKeys, err)
		}
		defer answer.Body.Close()
		_, _ = io.CopyN(io.Discard, answer.Body, bufferSize) // the connection may be used again
		who := answer.Header.Values(a.Header)
		switch {
		case answer.StatusCode == http.StatusUnauthorized || answer.StatusCode == http.StatusForbidden:
			return "", idempotency.Unauthorized("Authorization", "the service that names callers does not know this one")
		case answer.StatusCode < 200 || answer.StatusCode > 299:
			return "", fmt.Errorf("%w: the service that names callers answers %d", idempotency.ErrNoKeys, answer.StatusCode)
		case len(who) != 1 || who[0] == "":
			return "", idempotency.Unauthorized("Authorization", "the service that names callers does not name this one")
		}
		return names.Digest("ask", a.Header, who[0]), nil
	}
}

// describe gives a question the headers with which the upstream gets a request, without those about
// its body and its connection, and what the request asks for.
func (g *Gateway) describe(r, question *http.Request) {
	header := r.Header.Clone()
	question.Header = header
	g.dropMisleading(header)
	for name := range header {
		if strings.HasPrefix(name, "Content-") || notAsked[name] {
			delete(header, name)
		}
	}
	g.forwarded(&httputil.ProxyRequest{In: r, Out: question})
	if _, has := header[forwardedHost]; !has {
		header.Set(forwardedHost, r.Host)
	}
	header.Set(requestIDHeader, exchangeOf(r.Context()).id)
	header.Set("X-Forwarded-Method", r.Method)
	header.Set("X-Forwarded-Uri", frontdoor.RawPath(r.URL)+queryOf(r.URL))
}

func queryOf(u *url.URL) string {
	if u.RawQuery == "" {
		return ""
	}
	return "?" + u.RawQuery
}

// notAsked are the headers of a request that a question about it does not have: of its connection,
// and those that could get an answer without a name.
var notAsked = map[string]bool{
	"Connection": true, "Keep-Alive": true, "Proxy-Connection": true, "Te": true, "Trailer": true, "Transfer-Encoding": true, "Upgrade": true,
	"Expect": true, "If-None-Match": true, "If-Modified-Since": true,
}
