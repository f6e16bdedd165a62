package server

import (
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/coatcheck/coatcheck/idempotency"
	"github.com/coatcheck/coatcheck/internal/events"
	"github.com/coatcheck/coatcheck/internal/names"
	"github.com/coatcheck/coatcheck/internal/requestlog"
	"github.com/coatcheck/coatcheck/internal/wire"
)

const defaultTTL = 24 * time.Hour

func (s *Server) issueToken(c echo.Context) error {
	var request wire.TokenRequest
	if err := body(c, &request); err != nil {
		return err
	}
	ttl, err := millis("ttl_ms", request.TTL, defaultTTL, idempotency.MinTTL, idempotency.MaxTTL)
	if err != nil {
		return err
	}
	if request.Scope != "" && !names.Valid(request.Scope) {
		return invalid("scope", nameRule)
	}
	if err := mayTouch(c, "scope", request.Scope); err != nil {
		return err
	}
	token, err := s.tokens.Issue(c.Request().Context(), s.principal(c.Request()), request.Scope, ttl)
	if err != nil {
		return err
	}
	s.events.Count(events.TokenIssued)
	noStore(c)
	c.Response().Header().Set(echo.HeaderLocation, "/token/"+token.Value)
	return c.JSON(http.StatusCreated, wire.TokenIssued{Token: token.Value, ExpiresAt: token.ExpiresAt, Scope: token.Scope})
}

var tokenForm = names.NewForm("A-Za-z0-9._~-", 1, 255)

// tokenOf reads the token from the path. What cannot be a token was never issued, unless it is not
// even a name.
func (s *Server) tokenOf(c echo.Context) (idempotency.OperationKey, error) {
	text, err := segmentOf(c, "token")
	if err != nil {
		return idempotency.OperationKey{}, err
	}
	token, err := url.PathUnescape(text)
	if err != nil || !tokenForm.MatchString(token) {
		return idempotency.OperationKey{}, &fault{wire.InvalidName, "token", "1 to 255 characters, as it was issued"}
	}
	return idempotency.IssuedToken(s.principal(c.Request()), token), nil
}

func (s *Server) tokenStatus(c echo.Context) error {
	ref, err := s.tokenOf(c)
	if err != nil {
		return err
	}
	status, err := s.tokens.Status(c.Request().Context(), ref)
	if err != nil {
		return err
	}
	noStore(c)
	return c.JSON(http.StatusOK, wire.TokenStatus{
		State: string(status.State), ExpiresAt: status.ExpiresAt, Attempts: status.Attempts, Fence: status.Fence,
		Scope: status.Scope, LeaseUntil: status.LeaseUntil,
	})
}

// claimToken claims a token for an operation that another service runs. It checks that the server
// is not stopping after it has read the request, so that nothing is claimed later.
func (s *Server) claimToken(c echo.Context) error {
	ref, err := s.tokenOf(c)
	if err != nil {
		return err
	}
	terms, err := claimOptions(c)
	if err != nil {
		return err
	}
	if s.draining.Closing.Load() {
		return errClosing
	}
	terms.RequestID = requestlog.ID(c.Request().Context())
	outcome, err := s.tokens.Claim(c.Request().Context(), ref, terms)
	if err != nil {
		return err
	}
	noStore(c)
	if !outcome.Granted {
		s.events.Count(events.TokenReplayed)
		answer := wireAnswer(outcome.Answer)
		return c.JSON(http.StatusOK, wire.Claimed{Outcome: "replay", Response: &answer})
	}
	s.events.Count(events.TokenClaimed)
	grant := outcome.Grant
	return c.JSON(http.StatusOK, wire.Claimed{Outcome: "granted", Lease: grant.Owner, Fence: grant.Fence, Attempt: grant.Attempt, LeaseUntil: grant.Until})
}

func claimOptions(c echo.Context) (idempotency.ClaimOptions, error) {
	var request wire.ClaimRequest
	if err := body(c, &request); err != nil {
		return idempotency.ClaimOptions{}, err
	}
	if n := len(request.Fingerprint); n < 1 || n > 256 {
		return idempotency.ClaimOptions{}, invalid("fingerprint", "1 to 256 bytes that are the same for the same request, such as a SHA-256 of it")
	}
	policy := idempotency.Policy(request.Policy)
	if policy != "" && policy != idempotency.Hold && policy != idempotency.Takeover {
		return idempotency.ClaimOptions{}, invalid("policy", "hold or takeover")
	}
	if request.Owner != "" && !names.Owner.MatchString(request.Owner) {
		return idempotency.ClaimOptions{}, invalid("owner", "16 to 128 visible ASCII characters, new and random for each attempt")
	}
	lease, err := millis("lease_ms", request.Lease, 0, idempotency.MinLease, idempotency.MaxLease)
	return idempotency.ClaimOptions{Fingerprint: request.Fingerprint, Policy: policy, Lease: lease, Scope: idempotency.AnyScope, Owner: request.Owner}, err
}

func wireAnswer(answer idempotency.Answer) wire.Answer {
	headers := map[string]string{}
	for name := range answer.Header {
		// as RFC 9110, section 5.3, lets several fields be one
		headers[name] = strings.Join(answer.Header.Values(name), ", ")
	}
	return wire.Answer{Status: answer.Status, Headers: headers, Body: answer.Body, NotKept: answer.NotKept}
}

func (s *Server) completeToken(c echo.Context) error {
	ref, lease, err := s.owned(c)
	if err != nil {
		return err
	}
	answer, err := answerOf(c)
	if err != nil {
		return err
	}
	if err := s.tokens.Complete(c.Request().Context(), ref, lease, answer, 0); err != nil {
		return err
	}
	s.events.Count(events.TokenCompleted)
	noStore(c)
	return c.NoContent(http.StatusNoContent)
}

var (
	headerName  = names.NewForm("A-Za-z0-9!#$%&'*+.^_`|~-", 1, 100)
	headerValue = regexp.MustCompile(`^[^\x00-\x08\x0a-\x1f\x7f]*$`)
)

func answerOf(c echo.Context) (idempotency.Answer, error) {
	var request wire.Answer
	if err := body(c, &request); err != nil {
		return idempotency.Answer{}, err
	}
	return checkedAnswer(request)
}

// checkedAnswer is an answer that can be recorded.
func checkedAnswer(request wire.Answer) (idempotency.Answer, error) {
	if request.Status < 200 || request.Status > 599 {
		return idempotency.Answer{}, invalid("status", "200 to 599")
	}
	header := http.Header{}
	for name, value := range request.Headers {
		if !headerName.MatchString(name) || !headerValue.MatchString(value) || header.Values(name) != nil {
			return idempotency.Answer{}, invalid("headers", "names and values as HTTP has them, each name once, in small letters or capitals")
		}
		header.Set(name, value)
	}
	return idempotency.Answer{Status: request.Status, Header: header, Body: request.Body, NotKept: request.NotKept}, nil
}

func (s *Server) extendToken(c echo.Context) error {
	ref, lease, err := s.owned(c)
	if err != nil {
		return err
	}
	var request wire.ExtendRequest
	if err := body(c, &request); err != nil {
		return err
	}
	span, err := millis("lease_ms", request.Lease, 0, idempotency.MinLease, idempotency.MaxLease)
	if err != nil {
		return err
	}
	until, err := s.tokens.Extend(c.Request().Context(), ref, lease, span, 0)
	if err != nil {
		return err
	}
	noStore(c)
	return c.JSON(http.StatusOK, wire.Extended{LeaseUntil: until})
}

func (s *Server) releaseToken(c echo.Context) error {
	ref, lease, err := s.owned(c)
	if err != nil {
		return err
	}
	if err := body(c, &struct{}{}); err != nil {
		return err
	}
	if err := s.tokens.Release(c.Request().Context(), ref, lease); err != nil {
		return err
	}
	s.didCounted(c, events.TokenReleased)
	noStore(c)
	return c.NoContent(http.StatusNoContent)
}

// owned reads the token from the path and the proof of its claim from the header.
func (s *Server) owned(c echo.Context) (idempotency.OperationKey, string, error) {
	ref, err := s.tokenOf(c)
	if err != nil {
		return ref, "", err
	}
	lease, err := leaseToken(c)
	return ref, lease, err
}
