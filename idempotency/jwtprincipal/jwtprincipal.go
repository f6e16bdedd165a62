// Package jwtprincipal identifies a caller by a claim of its verified bearer token, for
// [idempotency.Config].Principal and [idempotency.Route].Principal: a renewed token is the same
// caller, so that a request which is repeated after it is still the same operation.
//
//	callers, err := jwtprincipal.New(jwtprincipal.Config{
//		JWKS:    "https://id.example/.well-known/jwks.json",
//		Issuers: []string{"https://id.example/"},
//	})
//	tokens := idempotency.New(store, idempotency.Config{Principal: callers.Principal})
//
// A request without such a token, or with one that does not verify, is refused with
// [idempotency.ErrUnauthorized]: no claim is read before the signature holds, and no other header
// takes the token's place. That is not access control: a token that verifies may still have been
// revoked, which the service behind has to know.
package jwtprincipal

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/json"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/coatcheck/coatcheck/idempotency"
	"github.com/coatcheck/coatcheck/internal/lazyregexp"
	"github.com/coatcheck/coatcheck/internal/names"
)

// The defaults of a Config, and the most leeway there is.
const (
	DefaultClaim  = "sub"
	DefaultLeeway = 30 * time.Second
	MaxLeeway     = 5 * time.Minute
)

// Algorithms are the signatures that can be verified. None has a secret that both sides share, with
// which anyone who verifies could also sign.
func Algorithms() []string {
	return []string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}
}

// Config says whose tokens are taken. All but JWKS have a default. Processes that share operations
// need the same Claim, and tokens of the same issuers.
type Config struct {
	// the issuer's public keys (RFC 7517): an https or http URL, or the path of a file. They are
	// cached, and read again after 5 minutes (a file after 5 s), and for a token that none of them
	// has signed: three times in a row, then every 10 s (a file: 1 s) at most. While they cannot be
	// read the last ones count
	JWKS string
	// the claim that names the caller among those of its issuer: a text or a whole number; "" = sub
	Claim string
	// spellings of the iss that a token must have one of, as accounts.google.com with and without
	// https://: they are one issuer, and the first is part of the principal. nil = any iss, which is
	// part of the principal
	Issuers []string
	// one of the aud that a token must have; "" = any or none
	Audience   string
	Algorithms []string      // the alg that a token may have; nil = all of [Algorithms]
	Leeway     time.Duration // how far clocks may differ, up to MaxLeeway; 0 = 30 s
	// fetches the keys, with a time limit of 3 s of its own; nil = one that follows no redirect
	Client *http.Client
	// of keys that cannot be read; nil = slog.Default(). It never sees a token
	Logger *slog.Logger
}

// IsURL reports whether the keys come from a URL, and not from a file.
func (c Config) IsURL() bool { return strings.Contains(c.JWKS, "://") }

// Check returns every fault of a Config, each beginning with the name of its field in small
// letters. It reads no keys.
func (c Config) Check() error {
	var faults []error
	fault := func(bad bool, text string) {
		if bad {
			faults = append(faults, errors.New(text))
		}
	}
	fault(c.JWKS == "", "jwks: missing; the URL of the issuer's keys, such as https://id.example/.well-known/jwks.json, or a file")
	if c.IsURL() {
		at, err := url.Parse(c.JWKS)
		fault(err != nil || at.Scheme != "https" && at.Scheme != "http" || at.Host == "" || at.User != nil || at.Fragment != "",
			"jwks: not a URL such as https://id.example/.well-known/jwks.json, without a password")
	}
	fault(c.Leeway < 0 || c.Leeway > MaxLeeway, fmt.Sprintf("leeway: up to %v", MaxLeeway))
	fault(c.Algorithms != nil && len(c.Algorithms) == 0, "algorithms: at least one")
	for _, one := range c.Algorithms {
		fault(!slices.Contains(Algorithms(), one), fmt.Sprintf("algorithms: %q: one of %s", one, strings.Join(Algorithms(), ", ")))
	}
	return errors.Join(faults...)
}

// Verifier identifies callers. It is safe for concurrent use, and has nothing to close.
type Verifier struct {
	config     Config
	algorithms []jose.SignatureAlgorithm
	keys       *keySet
}

// New returns a Verifier. It fails on a [Config] that is wrong, and on a file without keys that can
// be read; a URL is asked when a token comes, or by [Verifier.Load].
func New(config Config) (*Verifier, error) {
	if err := config.Check(); err != nil {
		return nil, fmt.Errorf("jwtprincipal: %w", err)
	}
	config.Claim, config.Leeway = cmp.Or(config.Claim, DefaultClaim), cmp.Or(config.Leeway, DefaultLeeway)
	if config.Algorithms == nil {
		config.Algorithms = Algorithms()
	}
	v := &Verifier{config: config, keys: newKeySet(config)}
	for _, one := range config.Algorithms {
		v.algorithms = append(v.algorithms, jose.SignatureAlgorithm(one))
	}
	if !config.IsURL() {
		if err := v.Load(context.Background()); err != nil {
			return nil, fmt.Errorf("jwtprincipal: %w", err)
		}
	}
	return v, nil
}

// Load reads the keys now, to learn at a start whether they are there. Without it the first token
// has them read.
func (v *Verifier) Load(ctx context.Context) error { return v.keys.load(ctx) }

// Principal is for [idempotency.Config].Principal: a digest of the token's issuer and of the claim.
// The error is [idempotency.ErrUnauthorized], or [idempotency.ErrNoKeys] while there are no keys
// that could tell.
func (v *Verifier) Principal(r *http.Request) (string, error) {
	text, err := bearer(r.Header)
	if err != nil {
		return "", err
	}
	token, err := jwt.ParseSigned(text, v.algorithms)
	if err != nil || len(token.Headers) != 1 {
		return "", refused("it is no signed token (JWS), or its alg is none that is taken here")
	}
	claims, err := v.verified(r.Context(), token)
	if err != nil {
		return "", err
	}
	return v.principalOf(claims)
}

// bearer is the token of a request (RFC 6750, section 2.1).
func bearer(header http.Header) (string, error) {
	values := header.Values("Authorization")
	if len(values) == 0 {
		return "", fmt.Errorf("%w: there is no bearer token, as Authorization: Bearer …", idempotency.ErrUnauthorized)
	}
	scheme, token, _ := strings.Cut(values[0], " ")
	if len(values) > 1 || !strings.EqualFold(scheme, "Bearer") {
		return "", fmt.Errorf("%w: Authorization has to be one bearer token", idempotency.ErrUnauthorized)
	}
	return strings.TrimLeft(token, " "), nil
}

// refused is the refusal of a token. Its text has nothing of the token.
func refused(why string) error {
	return fmt.Errorf("%w: the bearer token: %s", idempotency.ErrUnauthorized, why)
}

// claims are those of a token, each as it was written.
type claims map[string]json.RawMessage

// text is a claim that is a text; ok is false for any other, and without it. What UTF-8 cannot
// write, as half of a surrogate pair, is none: all such were one character, and two callers one.
func (c claims) text(name string) (text string, ok bool) {
	raw := c[name]
	if len(raw) == 0 || raw[0] != '"' || !jsontext.Value(raw).IsValid() {
		return "", false
	}
	return text, json.Unmarshal(raw, &text) == nil
}

// verified returns the claims of a token whose signature is that of one of the keys.
func (v *Verifier) verified(ctx context.Context, token *jwt.JSONWebToken) (claims, error) {
	var found claims
	err := errOtherKey
	lost := v.keys.try(ctx, token.Headers[0].KeyID, func(keys []jose.JSONWebKey) bool {
		found, err = v.by(keys, token)
		return !errors.Is(err, errOtherKey)
	})
	if lost != nil {
		return nil, lost
	}
	return found, err
}

// errOtherKey refuses a token that none of the keys has signed.
var errOtherKey = refused("it is not signed with a key of its issuer")

// by returns the claims of a token that one of the keys has signed.
func (v *Verifier) by(keys []jose.JSONWebKey, token *jwt.JSONWebToken) (claims, error) {
	for _, key := range keys {
		var payload json.RawMessage
		if key.Algorithm != "" && key.Algorithm != token.Headers[0].Algorithm || token.Claims(key.Key, &payload) != nil {
			continue
		}
		var limits struct { // without sub and jti, which may be numbers
			Issuer    string           `json:"iss"`
			Audience  jwt.Audience     `json:"aud"`
			Expiry    *jwt.NumericDate `json:"exp"`
			NotBefore *jwt.NumericDate `json:"nbf"`
			IssuedAt  *jwt.NumericDate `json:"iat"`
		}
		found := claims{}
		if json.Unmarshal(payload, &limits) != nil || json.Unmarshal(payload, &found) != nil {
			return nil, refused("its claims cannot be read")
		}
		return found, v.current(jwt.Claims{
			Issuer: limits.Issuer, Audience: limits.Audience,
			Expiry: limits.Expiry, NotBefore: limits.NotBefore, IssuedAt: limits.IssuedAt,
		})
	}
	return nil, errOtherKey
}

// current refuses a token by its time, its issuer or its audience.
func (v *Verifier) current(claims jwt.Claims) error {
	if len(v.config.Issuers) > 0 && !slices.Contains(v.config.Issuers, claims.Issuer) {
		return refused("it is of another issuer")
	}
	expected := jwt.Expected{}
	if v.config.Audience != "" {
		expected.AnyAudience = jwt.Audience{v.config.Audience}
	}
	err := claims.ValidateWithLeeway(expected, v.config.Leeway)
	for _, known := range []struct {
		err error
		why string
	}{
		{jwt.ErrExpired, "it has expired"},
		{jwt.ErrNotValidYet, "it is not valid yet"},
		{jwt.ErrIssuedInTheFuture, "it was issued in the future"},
		{jwt.ErrInvalidAudience, "it is for another audience"},
	} {
		if errors.Is(err, known.err) {
			return refused(known.why)
		}
	}
	if err != nil {
		return refused("it is not valid")
	}
	return nil
}

// wholeNumber matches a number that has no other spelling.
var wholeNumber = lazyregexp.New(`^(0|-?[1-9][0-9]{0,18})$`)

// principalOf is the caller that a token names: the claim, among those of the issuer.
func (v *Verifier) principalOf(found claims) (string, error) {
	issuer, isText := found.text("iss")
	if _, isThere := found["iss"]; isThere && !isText {
		return "", refused("its iss is no text")
	}
	if len(v.config.Issuers) > 0 {
		issuer = v.config.Issuers[0]
	}
	kind := "text"
	value, isText := found.text(v.config.Claim)
	if raw := string(found[v.config.Claim]); !isText && wholeNumber().MatchString(raw) {
		kind, value = "number", raw
	}
	if value == "" {
		return "", refused("it has no claim " + v.config.Claim + " that is a text or a whole number")
	}
	return names.Digest("jwt", issuer, v.config.Claim, kind, value), nil
}
