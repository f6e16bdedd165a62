package server

import (
	"context"
	"crypto/tls"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/coatcheck/coatcheck/access"
	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/frontdoor"
	"github.com/coatcheck/coatcheck/internal/share"
)

// admission decides which callers may ask.
type admission struct {
	policy   *access.Policy // nil = every caller may do everything
	limiter  *access.Limiter
	requests share.Quota // of requests under way
	// of requests with that price
	lists, documents share.Quota

	journal *journal
	tls     func() *tls.Config // the settings in force; nil = certificates are not looked at again
	now     func() time.Time
}

// admits lets a request through whose caller has a role, and puts the caller into its context.
// Where access is not controlled it admits every request.
func (a *admission) admits(role access.Role, price *price, at clients) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			leave, err := a.enter(c, role, price, at)
			switch {
			case err == nil:
				defer leave()
				return next(c)
			case at.refuse == nil:
				return err
			}
			a.journal.refused(c, err)
			return at.refuse(c, err)
		}
	}
}

// enter puts a caller that may ask into the request's context, and reserves what the request may
// take until leave. What is open to all has no caller.
func (a *admission) enter(c echo.Context, role access.Role, price *price, at clients) (leave func(), err error) {
	if role == access.None {
		if a.policy != nil { // every caller is the zero Caller here
			c.SetRequest(c.Request().WithContext(access.With(c.Request().Context(), access.Caller{})))
		}
		return a.pay(c, price, "")
	}
	if err := frontdoor.Reserve(c.Request().Context(), 0); err != nil {
		return nil, err
	}
	who := caller(c)
	if a.policy != nil {
		who, err = a.admit(c, role, at)
		// for the log, also of a refused caller
		c.SetRequest(c.Request().WithContext(access.With(c.Request().Context(), who)))
		if err == nil {
			err = frontdoor.Own(c.Request().Context(), who.Principal)
		}
	} else {
		frontdoor.Know(c.Request().Context())
		err = a.checkCertificate(c)
	}
	if err != nil {
		return nil, err
	}
	left, err := placeFor(&a.requests, who.Principal, "as many requests are under way here as may be, or as many of this principal while "+
		"others have some")
	if err != nil {
		return nil, err
	}
	paid, err := a.pay(c, price, who.Principal)
	if err != nil {
		left()
		return nil, err
	}
	return func() { paid(); left() }, nil
}

// admit returns the caller, if it has the role and is within its limit.
func (a *admission) admit(c echo.Context, role access.Role, at clients) (access.Caller, error) {
	caller, err := a.identify(c, at)
	if err != nil {
		return caller, err
	}
	if err := a.rateLimit(c, caller); err != nil {
		return caller, err
	}
	switch {
	case caller.May(role):
		return caller, nil
	case caller.Principal == "":
		return caller, unauthorized(c, "", "this route needs role "+role.String()+
			": show a key as Authorization: Bearer cck_…, or as X-API-Key, or a client certificate")
	}
	challenge(c, `error="insufficient_scope", scope="`+role.String()+`"`)
	return caller, &fault{api.Forbidden, "role", "this route needs " + role.String() + ", and this caller has " + caller.Role.String()}
}

// identify returns the caller of a request's key, else that of the connection's certificate, else
// the anonymous one. It refuses a wrong key or certificate, and a certificate that has expired
// since the connection began. Where access is not controlled it returns [access.Unrestricted].
func (a *admission) identify(c echo.Context, at clients) (access.Caller, error) {
	if err := a.checkCertificate(c); err != nil {
		return access.Caller{}, err
	}
	if a.policy == nil {
		return access.Unrestricted, nil
	}
	key, err := keyOf(c.Request().Header)
	if err != nil {
		return access.Caller{}, unauthorized(c, "invalid_request", err.Error())
	}
	if key == "" && at.key != nil {
		key = at.key(c)
	}
	if key != "" {
		return a.byKey(c, key)
	}
	if caller, ok := a.byCertificate(c.Request()); ok {
		return caller, nil
	}
	if at.own != nil {
		if caller, ok := at.own(c); ok {
			return a.policy.Limited(caller), nil
		}
	}
	return a.policy.Anonymous(), nil
}

// recognized returns the caller of a known key or certificate, or the anonymous one. It returns the
// zero Caller for a wrong key, and where access is not controlled. It refuses and counts nothing.
func (a *admission) recognized(request *http.Request) access.Caller {
	if a.policy == nil {
		return access.Caller{}
	}
	if key, err := keyOf(request.Header); err != nil || key != "" {
		caller, _ := a.policy.Key(key) // the zero Caller beside an error
		return caller
	}
	if caller, ok := a.byCertificate(request); ok {
		return caller
	}
	return a.policy.Anonymous()
}

// byCertificate returns the caller of a connection's client certificate. ok is false if it is
// unknown, or there is none.
func (a *admission) byCertificate(request *http.Request) (caller access.Caller, ok bool) {
	if connection := request.TLS; connection != nil && len(connection.VerifiedChains) > 0 && a.certificateFault(request) == "" {
		return a.policy.Certificate(connection.PeerCertificates[0])
	}
	return access.Caller{}, false
}

// byKey returns the caller of a key.
func (a *admission) byKey(c echo.Context, key string) (access.Caller, error) {
	caller, err := a.policy.Key(key)
	switch {
	case errors.Is(err, access.ErrNotRead):
		return caller, err
	case errors.Is(err, access.ErrExpired):
		return caller, unauthorized(c, "invalid_token", "the key's time is over")
	case err != nil:
		return caller, unauthorized(c, "invalid_token", "this key is not known here")
	}
	return caller, nil
}

var errTwoKeys = errors.New("one key belongs into a request, once: as Authorization: Bearer cck_…, or as X-API-Key")

// keyOf reads the key of a request's header; "" if it shows none.
func keyOf(header http.Header) (key string, err error) {
	bearers, plain := header.Values(echo.HeaderAuthorization), header.Values("X-Api-Key")
	switch {
	case len(bearers)+len(plain) == 0:
		return "", nil
	case len(bearers)+len(plain) > 1:
		return "", errTwoKeys
	case len(plain) == 1:
		key = plain[0]
	default:
		scheme, token, _ := strings.Cut(bearers[0], " ")
		if strings.EqualFold(scheme, "Bearer") {
			key = strings.TrimLeft(token, " ")
		}
	}
	if key == "" {
		return "", errTwoKeys
	}
	return key, nil
}

// unauthorized refuses an unknown caller, as RFC 6750 says; without an error of its, a keyless one.
func unauthorized(c echo.Context, bearerError, detail string) error {
	if bearerError == "" {
		challenge(c, "")
	} else {
		challenge(c, `error="`+bearerError+`"`)
	}
	return &fault{api.Unauthorized, echo.HeaderAuthorization, detail}
}

// challenge is the header that names how to authenticate.
func challenge(c echo.Context, more string) {
	text := `Bearer realm="coatcheck"`
	if more != "" {
		text += ", " + more
	}
	c.Response().Header().Set(echo.HeaderWWWAuthenticate, text)
}

// caller is the request's caller. It is an admin where access is not controlled, and for a route
// that skips its role.
func caller(c echo.Context) access.Caller { return access.From(c.Request().Context()) }

// owner is the principal of a request, which a pool, a tag or a wait counts for.
func owner(ctx context.Context) string { return access.From(ctx).Principal }
