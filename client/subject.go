package client

import (
	"cmp"
	"context"
	"net/http"
	"time"
	"unicode/utf8"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/names"
)

// subject is what is claimed: a token, or an operation by a key of the caller's own.
type subject struct {
	token string
	own   *OwnKey // nil = a token
	name  string  // of the operation by an own key, which the answer to its claim tells
}

// kind is what errors call it.
func (s subject) kind() string {
	if s.own != nil || s.name != "" {
		return "operation"
	}
	return "token"
}

func (c *Client) complete(ctx context.Context, on subject, lease string, answer Answer) error {
	for name, value := range answer.Header {
		if !utf8.ValidString(name + value) { // JSON would write others of its kind alike
			return call{op: "complete " + on.kind()}.invalid("the names and values of headers are UTF-8")
		}
	}
	body := api.Answer{Status: cmp.Or(answer.Status, http.StatusOK), Headers: answer.Header, Body: answer.Body, NotKept: answer.NotKept}
	return c.owned(ctx, on, call{op: "complete", lease: lease, body: body})
}

func (c *Client) extend(ctx context.Context, on subject, lease string, span time.Duration) (time.Time, error) {
	by := func(ctx context.Context, extend call) error { return c.owned(ctx, on, extend) }
	made := call{op: "extend", lease: lease, body: api.ExtendRequest{LeaseMs: givenMillis(span)}}
	extended, err := ask(ctx, by, made, func(extended api.Extended) bool { return !extended.LeaseUntil.IsZero() })
	return extended.LeaseUntil.Time, err
}

func (c *Client) giveBack(ctx context.Context, on subject, lease string) error {
	return c.owned(ctx, on, call{op: "release", lease: lease})
}

var leaseForm = names.NewForm("!-~", 1, 512)

// owned makes a call that only the owner of a claim may make. Its op is the last word of its path.
func (c *Client) owned(ctx context.Context, on subject, made call) error {
	verb := made.op
	made.op, made.method = verb+" "+on.kind(), http.MethodPost
	if !leaseForm.MatchString(made.lease) {
		return made.invalid("a lease is what a claim was granted with")
	}
	if on.kind() == "operation" {
		made.name, made.path = on.name, "/operation/"+on.name+"/"+verb
		return c.onOperation(ctx, made)
	}
	made.token, made.path = on.token, "/token/"+on.token+"/"+verb
	return c.onToken(ctx, made)
}

// onToken makes a call about one token. It sends none that cannot be one: it would be another path.
func (c *Client) onToken(ctx context.Context, call call) error {
	if !names.Token.MatchString(call.token) || call.token == "." || call.token == ".." {
		return call.invalid("a token has 1 to 255 characters of A–Z a–z 0–9 . _ ~ -, as it was issued")
	}
	return c.exchange(ctx, call)
}
