package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coatcheck/coatcheck/idempotency"
	"github.com/coatcheck/coatcheck/internal/muxpattern"
	"github.com/coatcheck/coatcheck/internal/secret"
)

// The question to a service what became of an operation: the request that a route's resolve names,
// with the operation's name and the fence to close. The gateway asks it. A client who does gets
// 404, whatever routes there are: it could close operations that are under way.

// resolutionHeader of the answer has the service's word: completed or not-begun.
const resolutionHeader = "Idempotency-Resolution"

// operationPart of a resolver's path stands for the operation's name.
const operationPart = "{operation}"

// resolveFault is what is wrong with a route's resolve; "" if nothing is.
func resolveFault(pattern string) string {
	if wrong := patternFault(pattern); wrong != "" {
		return wrong
	}
	method, host, path := muxpattern.Split(pattern)
	bare := strings.Replace(path, operationPart, "x", 1)
	switch {
	case method == "" || muxpattern.IsSafe(method):
		return "a method that may change something belongs before the path, such as PUT: the service closes the operation"
	case host != "":
		return "a path without a host: the service behind the gateway is asked"
	case bare == path || strings.ContainsAny(bare, "{}"):
		return "the path has " + operationPart + " once, for the operation's name, and no other wildcard"
	}
	if _, err := readPath(bare); err != nil {
		return "the path is not plain: " + err.Error()
	}
	return ""
}

// resolves are the patterns of all resolvers, each once.
func (r Routes) resolves() (patterns []string) {
	seen := map[string]bool{"": true}
	for _, route := range r.List {
		if !seen[route.ResolveAt] {
			patterns = append(patterns, route.ResolveAt)
		}
		seen[route.ResolveAt] = true
	}
	return patterns
}

// asksAt reports whether a path is that of a question, in any spelling that a service may take for
// it: with other capitals, and with a slash at its end. No client has a use for such a path, under
// whatever method and host.
func (r Routes) asksAt(path string) bool {
	for _, pattern := range r.resolves() {
		_, _, at := muxpattern.Split(pattern)
		before, after, _ := strings.Cut(folded(at), operationPart)
		rest, begins := strings.CutPrefix(folded(path), before)
		name, ends := strings.CutSuffix(rest, after)
		if begins && ends && !strings.Contains(name, "/") {
			return true
		}
	}
	return false
}

func folded(path string) string { return strings.ToLower(strings.TrimSuffix(path, "/")) }

// askHeader tells a question from what a client has sent: the gateway drops it from that.
const askHeader = "Idempotency-Resolve"

// resolver asks the service about operations of a route; nil if the route has none.
func (g *Gateway) resolver(route Route) idempotency.Resolver {
	if route.ResolveAt == "" {
		return nil
	}
	method, _, path := muxpattern.Split(route.ResolveAt)
	return func(ctx context.Context, about idempotency.Operation) (idempotency.Resolution, error) {
		if routes := g.routes.Load(); routes == nil || !slices.Contains(routes.routes.resolves(), route.ResolveAt) {
			return idempotency.Resolution{}, errors.New("the routes in force do not have this resolver")
		}
		at := g.config.Upstream.url.JoinPath(strings.Replace(path, operationPart, about.Name, 1))
		question, err := http.NewRequestWithContext(ctx, method, at.String(), http.NoBody)
		if err != nil {
			return idempotency.Resolution{}, err
		}
		question.Header.Set(idempotency.OperationHeader, about.Name)
		question.Header.Set(askHeader, "true")
		question.Header.Set(idempotency.FenceHeader, strconv.FormatInt(about.Fence, 10))
		question.Header.Set(requestIDHeader, secret.New())
		answer, err := g.question.RoundTrip(question) // it follows no redirect
		if err != nil {
			// the error could quote what came
			return idempotency.Resolution{}, errors.New("the service does not answer")
		}
		defer answer.Body.Close()
		return g.resolutionOf(answer, route.MaxAnswer)
	}
}

// resolutionOf reads the service's answer to a question.
func (g *Gateway) resolutionOf(answer *http.Response, limit int) (said idempotency.Resolution, err error) {
	words := answer.Header.Values(resolutionHeader)
	said.Decision = idempotency.Decision(strings.Join(words, ", "))
	if said.Decision == idempotency.DecisionNotBegun {
		return said, nil
	}
	if said.Decision != idempotency.DecisionHappened {
		return said, fmt.Errorf("the service answers %d and %d headers %s, of which one has to say %s or %s",
			answer.StatusCode, len(words), resolutionHeader, idempotency.DecisionHappened, idempotency.DecisionNotBegun)
	}
	body, err := io.ReadAll(io.LimitReader(answer.Body, int64(limit)+1))
	if err != nil {
		return idempotency.Resolution{}, errors.New("the service's answer broke off")
	}
	g.config.Upstream.outside(answer, "")
	keepStatusText(answer)
	dropAdded(answer.Header)
	for _, name := range []string{resolutionHeader, requestIDHeader, idempotency.NotBegunHeader} {
		answer.Header.Del(name)
	}
	said.Answer = idempotency.Answer{Status: answer.StatusCode, Header: answer.Header, Body: body}
	if len(body) > limit {
		said.Answer.Body, said.Answer.NotKept = nil, true
	}
	return said, nil
}

// resolved counts a question that was asked.
func (g *Gateway) resolved(about idempotency.Operation, how idempotency.Decision) {
	if how == "" {
		g.metrics.resolved.WithLabelValues("in_vain").Inc()
		return
	}
	g.metrics.resolved.WithLabelValues(strings.ReplaceAll(string(how), "-", "_")).Inc()
	g.metrics.doubted.WithLabelValues().Observe(max(time.Since(about.Until), 0).Seconds())
}
