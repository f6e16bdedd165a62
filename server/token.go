package server

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/labstack/echo/v4"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/idempotency"
	"github.com/coatcheck/coatcheck/internal/frontdoor"
	"github.com/coatcheck/coatcheck/internal/lazyregexp"
	"github.com/coatcheck/coatcheck/internal/names"
	"github.com/coatcheck/coatcheck/internal/requestlog"
	"github.com/coatcheck/coatcheck/server/internal/events"
)

const defaultTTL = 24 * time.Hour

// tokens are the handlers of /token.
type tokens struct {
	tokens    *idempotency.Tokens
	journal   *journal
	principal func(*http.Request) (string, error)
	draining  *frontdoor.Draining
}

func (h *tokens) routes(at *router) {
	at.use.handle("POST /token", "idempotency.Issue", smallPrice, h.issue, no)
	at.read.handle("GET /token/:token", "idempotency.Status", smallPrice, h.status, no)
	at.use.handle("POST /token/:token/claim", "idempotency.Claim", smallPrice, h.claim, no)
	at.use.handle("POST "+ownClaim, "idempotency.Claim", smallPrice, h.claimOwn, no)
	for path, key := range map[string]func(*request) idempotency.Key{"/token/:token": h.key, "/operation/:operation": named} {
		at.use.handle("POST "+path+"/complete", "idempotency.Complete", smallPrice, h.complete(key), no)
		at.use.handle("POST "+path+"/extend", "idempotency.Extend", smallPrice, h.extend(key), no)
		at.use.handle("POST "+path+"/release", "idempotency.Release", smallPrice, h.release(key), no)
	}
}

// ownClaim is where operations are claimed by the callers' own keys.
const ownClaim = "/operation/claim"

// named reads the name of an operation from the path. Its claim is proven by the lease.
func named(r *request) idempotency.Key {
	return idempotency.KeyNamed(operationName(r))
}

func (h *tokens) issue(r *request) error {
	var asked api.TokenRequest
	r.body(&asked)
	ttl := r.millis("ttl_ms", asked.TTLMs, defaultTTL, idempotency.MinTTL, idempotency.MaxTTL)
	if asked.Scope != "" && !names.Valid(asked.Scope) {
		r.invalid("scope", nameRule)
	}
	r.mayTouch("scope", asked.Scope)
	if r.err != nil {
		return r.err
	}
	who, err := h.principal(r.Request())
	if err != nil {
		return err
	}
	token, err := h.tokens.Issue(r.ctx(), who, asked.Scope, ttl)
	if err != nil {
		return err
	}
	h.journal.events.Count(events.TokenIssued)
	r.Response().Header().Set(echo.HeaderLocation, "/token/"+token.Value)
	return r.answer(http.StatusCreated, api.TokenIssued{Token: token.Value, ExpiresAt: api.At(token.ExpiresAt), Scope: token.Scope})
}

// key reads the token from the path. What cannot be a token, but is a name, was never issued.
func (h *tokens) key(r *request) idempotency.Key {
	token, err := url.PathUnescape(r.segment("token"))
	if err != nil || !names.Token.MatchString(token) {
		r.fail(&fault{api.InvalidName, "token", "1 to 255 characters, as it was issued"})
	}
	who, err := h.principal(r.Request())
	if err != nil {
		r.fail(err)
	}
	return idempotency.IssuedToken(who, token)
}

func (h *tokens) status(r *request) error {
	key := h.key(r)
	if r.err != nil {
		return r.err
	}
	status, err := h.tokens.Status(r.ctx(), key)
	return r.result(api.TokenStatus{
		State: api.State(status.State), ExpiresAt: api.At(status.ExpiresAt), Attempts: status.Attempts, Fence: status.Fence,
		Scope: status.Scope, LeaseUntil: api.At(status.Until),
	}, err)
}

// claim claims a token for an operation that another service runs. It checks that the server is not
// stopping after it has read the request, so that nothing is claimed later.
func (h *tokens) claim(r *request) error {
	var asked struct {
		api.ClaimRequest

		Owner json.RawMessage `json:"owner"`
	}
	key := h.key(r)
	r.body(&asked)
	options := claimOptions(r, asked.ClaimRequest, asked.Owner)
	if r.err != nil {
		return r.err
	}
	return h.claimed(r, key, options, "")
}

const maxOwnKey = 1024 // bytes

// claimOwn claims an operation by the caller's own key, as claim does.
func (h *tokens) claimOwn(r *request) error {
	var asked struct {
		api.OperationClaim

		Owner json.RawMessage `json:"owner"`
	}
	r.body(&asked)
	if n := len(asked.Key); n < 1 || n > maxOwnKey || !utf8.ValidString(asked.Key) || strings.ContainsFunc(asked.Key, unicode.IsControl) {
		r.invalid("key", "1 to 1,024 bytes of UTF-8 without control characters")
	}
	if asked.Scope != "" && !names.Valid(asked.Scope) {
		r.invalid("scope", nameRule)
	}
	r.mayTouch("scope", asked.Scope)
	options := claimOptions(r, asked.ClaimRequest, asked.Owner)
	options.Retention = r.millis("retention_ms", asked.RetentionMs, 0, idempotency.MinTTL, idempotency.MaxRetention)
	who, err := h.principal(r.Request())
	if err != nil {
		r.fail(err)
	}
	if r.err != nil {
		return r.err
	}
	options.Route = asked.Scope
	h.tokens.WarnNameless(r.ctx(), who, ownClaim)
	key := idempotency.Key{Principal: who, Scope: asked.Scope, ID: asked.Key}
	return h.claimed(r, key, options, key.Operation())
}

func (h *tokens) claimed(r *request, key idempotency.Key, options idempotency.ClaimOptions, operation string) error {
	if h.draining.Closing.Load() {
		return errClosing
	}
	outcome, err := h.tokens.Claim(r.ctx(), key, options)
	if err != nil {
		return err
	}
	if !outcome.Granted {
		h.journal.events.Count(events.OperationReplayed)
		answer := wireAnswer(outcome.Answer)
		return r.answer(http.StatusOK, api.Claimed{Outcome: "replay", Operation: operation, Response: &answer})
	}
	h.journal.events.Count(events.OperationClaimed)
	grant := outcome.Grant
	return r.answer(http.StatusOK, api.Claimed{
		Outcome: "granted", Operation: operation, Lease: grant.LeaseToken, Fence: grant.Fence, Attempt: grant.Attempt,
		LeaseUntil: api.At(grant.Until),
	})
}

// claimOptions reads the options of a claim. A claim's secret was once the field owner of its body:
// two workers that sent the name of their service there both got the claim.
func claimOptions(r *request, asked api.ClaimRequest, owner json.RawMessage) idempotency.ClaimOptions {
	if n := len(asked.Fingerprint); n < 1 || n > 256 {
		r.invalid("fingerprint", "1 to 256 bytes that are the same for the same request, such as a SHA-256 of it")
	}
	policy := idempotency.Policy(asked.Policy)
	if policy != "" && policy != idempotency.PolicyHold && policy != idempotency.PolicyTakeover {
		r.invalid("policy", "hold or takeover")
	}
	if owner != nil {
		r.invalid("owner", "a claim has no such field: to repeat it, send the header "+leaseHeader+", "+chosenLeaseRule)
	}
	return idempotency.ClaimOptions{
		Fingerprint: asked.Fingerprint, Policy: policy, Lease: attemptLease(r, asked.LeaseMs), Scope: idempotency.AnyScope,
		LeaseToken: r.chosenLease(),
		RequestID:  requestlog.ID(r.ctx()),
	}
}

func attemptLease(r *request, asked *int64) time.Duration {
	return r.millis("lease_ms", asked, 0, idempotency.MinLease, idempotency.MaxLease)
}

func wireAnswer(answer idempotency.Answer) api.Answer {
	headers := map[string]string{}
	for name, values := range answer.Header {
		if len(values) > 0 { // none: the handler has removed it
			// as RFC 9110, section 5.3, lets several fields be one
			headers[name] = strings.Join(values, ", ")
		}
	}
	return api.Answer{Status: answer.Status, Headers: headers, Body: answer.Body, NotKept: answer.NotKept}
}

func (h *tokens) complete(key func(*request) idempotency.Key) func(*request) error {
	return func(r *request) error {
		key, lease := key(r), r.lease()
		var asked api.Answer
		r.body(&asked)
		answer := answerOf(r, asked)
		if r.err != nil {
			return r.err
		}
		if err := h.tokens.Complete(r.ctx(), key, lease, answer); err != nil {
			return err
		}
		return r.done()
	}
}

var headerValue = lazyregexp.New(`^[^\x00-\x08\x0a-\x1f\x7f]*$`)

// answerOf is an answer that can be recorded.
func answerOf(r *request, asked api.Answer) idempotency.Answer {
	if asked.Status < 200 || asked.Status > 599 {
		r.invalid("status", "200 to 599")
	}
	header := http.Header{}
	for name, value := range asked.Headers {
		if !names.Header.MatchString(name) || !headerValue().MatchString(value) || header.Values(name) != nil {
			r.invalid("headers", "names and values as HTTP has them, each name once, in small letters or capitals")
		}
		header.Set(name, value)
	}
	return idempotency.Answer{Status: asked.Status, Header: header, Body: asked.Body, NotKept: asked.NotKept}
}

func (h *tokens) extend(key func(*request) idempotency.Key) func(*request) error {
	return func(r *request) error {
		key, lease := key(r), r.lease()
		var asked api.ExtendRequest
		r.body(&asked)
		span := attemptLease(r, asked.LeaseMs)
		if r.err != nil {
			return r.err
		}
		until, err := h.tokens.Extend(r.ctx(), key, lease, span)
		return r.result(api.Extended{LeaseUntil: api.At(until)}, err)
	}
}

func (h *tokens) release(key func(*request) idempotency.Key) func(*request) error {
	return func(r *request) error {
		key, lease := key(r), r.lease()
		r.noFields()
		if r.err != nil {
			return r.err
		}
		if err := h.tokens.Release(r.ctx(), key, lease); err != nil {
			return err
		}
		h.journal.didCounted(r, events.OperationReleased)
		return r.done()
	}
}
