//go:build check

package chaos

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/idempotency"
)

// web never sends a request twice by itself: each has a connection of its own.
func web(t testing.TB) *http.Client {
	client := &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	t.Cleanup(client.CloseIdleConnections)
	return client
}

// client is one party that wants an operation done, and asks for it until it knows.
type client struct {
	*scene

	order *order
	name  string
	at    int // which of the order's doors it asks next
}

// settle asks until the answer is final. It waits as long as it is told to, but not longer than a
// third of a second, and asks the next door each time.
func (c *client) settle(ctx context.Context) {
	for {
		a, after := c.ask(ctx)
		if a.settled() || ctx.Err() != nil {
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(min(max(after, 20*time.Millisecond), 300*time.Millisecond)):
		}
	}
}

// ask sends the request once and writes down what came.
func (c *client) ask(ctx context.Context) (a answer, after time.Duration) {
	process, name := c.order.doors[c.at%len(c.order.doors)].process()
	c.at++
	a = answer{operation: c.order.name, client: c.name, front: name, sent: time.Now()}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, process.URL+"/"+c.order.policy, strings.NewReader(c.order.name+" of 12.99"))
	if err != nil {
		panic(err) // the URL is a process's own
	}
	request.Header.Set(c.order.header, c.order.value())
	c.order.asked()
	after = exchange(c.web, request, &a)
	a.excused = process.killed.Load()
	c.add(a)
	c.order.heard(a)
	return a, after
}

// exchange sends a request and notes what came back; after is how long the client is to wait.
func exchange(web *http.Client, request *http.Request, a *answer) (after time.Duration) {
	response, err := web.Do(request)
	if err != nil {
		a.got, a.failure = time.Now(), err.Error()
		return 0
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	a.got = time.Now()
	if err != nil {
		a.failure = err.Error() // half an answer is none
		return 0
	}
	a.status, a.body, a.replayed = response.StatusCode, string(body), response.Header.Get("Idempotent-Replayed") == "true"
	if a.status >= http.StatusBadRequest {
		var problem struct {
			Code string `json:"code"`
		}
		_ = json.Unmarshal(body, &problem)
		if a.code = problem.Code; a.code == "" {
			a.code = "no problem: " + a.body
		}
	}
	seconds, _ := strconv.Atoi(response.Header.Get("Retry-After")) // none is nothing to wait for
	return time.Duration(seconds) * time.Second
}

// issue gets a token, asking until there is one. What it is told on the way is part of the order's
// history.
func (c *client) issue(ctx context.Context) string {
	for ctx.Err() == nil {
		a := answer{operation: "a token for " + c.order.name, client: c.name, front: "issuer", sent: time.Now()}
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.rig.issuer.URL+"/token", http.NoBody)
		if err != nil {
			panic(err)
		}
		exchange(c.web, request, &a)
		var issued struct {
			Token string `json:"token"`
		}
		_ = json.Unmarshal([]byte(a.body), &issued)
		if a.status == http.StatusCreated && issued.Token != "" {
			return issued.Token
		}
		c.add(a)
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
	return ""
}

// header names by which an operation is known.
const (
	byToken = idempotency.TokenHeader
	byKey   = idempotency.KeyHeader
)
