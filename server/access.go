package server

import (
	"errors"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/coatcheck/coatcheck/access"
	"github.com/coatcheck/coatcheck/internal/frontdoor"
	"github.com/coatcheck/coatcheck/internal/wire"
)

// Route is one method of one path, and the role that a caller needs for it: access.None for what is
// open to all.
type Route struct {
	Method, Path string // the path as the documents write it, such as /counter/{key}
	Role         access.Role
}

// Routes lists all routes, by path and method.
func (s *Server) Routes() []Route { return slices.Clone(s.listed) }

// router is where routes are registered, each under the role that it needs.
type router struct {
	open, read, use, admin part

	roles map[string]access.Role
	echo  *echo.Echo
}

// part is where the routes of one role are registered.
type part struct {
	*router

	server *Server
	role   access.Role
	of     clients
}

// clients is how another system's clients say who they are, and are refused.
type clients struct {
	key func(echo.Context) string // where else a key may be; nil = nowhere
	// who shows what their system itself knows; nil = no one
	own    func(echo.Context) (access.Caller, bool)
	refuse func(echo.Context, error) error // nil = with a problem
}

func (s *Server) router(e *echo.Echo) *router {
	r := &router{roles: map[string]access.Role{}, echo: e}
	r.open, r.read = part{router: r, server: s, role: access.None}, part{router: r, server: s, role: access.Read}
	r.use, r.admin = part{router: r, server: s, role: access.Use}, part{router: r, server: s, role: access.Admin}
	return r
}

// forClients is the same part, for clients of another system.
func (p part) forClients(c clients) part {
	p.of = c
	return p
}

// GET registers a route; so do its siblings.
func (p part) GET(path string, handler echo.HandlerFunc, middleware ...echo.MiddlewareFunc) {
	p.Match([]string{http.MethodGet}, path, handler, middleware...)
}

// POST registers a route.
func (p part) POST(path string, handler echo.HandlerFunc, middleware ...echo.MiddlewareFunc) {
	p.Match([]string{http.MethodPost}, path, handler, middleware...)
}

// PUT registers a route.
func (p part) PUT(path string, handler echo.HandlerFunc, middleware ...echo.MiddlewareFunc) {
	p.Match([]string{http.MethodPut}, path, handler, middleware...)
}

// DELETE registers a route.
func (p part) DELETE(path string, handler echo.HandlerFunc, middleware ...echo.MiddlewareFunc) {
	p.Match([]string{http.MethodDelete}, path, handler, middleware...)
}

// Match registers one handler for several methods.
func (p part) Match(methods []string, path string, handler echo.HandlerFunc, middleware ...echo.MiddlewareFunc) {
	for _, method := range methods {
		p.roles[method+" "+path] = p.role
		around := []echo.MiddlewareFunc{p.server.admits(p.role, p.of)}
		if call := domainCall(method, path); call != "" && p.server.config.Tracer != nil {
			around = append(around, p.server.inDomain(call))
		}
		p.echo.Add(method, path, chain(handler, append(around, middleware...)))
	}
}

// complete lists the routes. One that was registered past the roster needs no role, which no one
// may have meant: it panics.
func (r *router) complete() (list []Route) {
	for _, route := range r.echo.Routes() {
		role, known := r.roles[route.Method+" "+route.Path]
		if !known {
			panic("server: " + route.Method + " " + route.Path + " says no role: register it through the roster, in routes.go")
		}
		list = append(list, Route{route.Method, braces(route.Path), role})
	}
	slices.SortFunc(list, func(a, b Route) int { return strings.Compare(a.Path+" "+a.Method, b.Path+" "+b.Method) })
	return list
}

// admits lets a request through whose caller has a role, and puts the caller into its context.
// Where access is not controlled it lets everybody through.
func (s *Server) admits(role access.Role, at clients) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			if role == access.None {
				if s.config.Access != nil { // every caller is the zero Caller here
					c.SetRequest(c.Request().WithContext(access.With(c.Request().Context(), access.Caller{})))
				}
				return next(c)
			}
			leave, err := s.enter(c, role, at)
			switch {
			case err == nil:
				defer leave()
				return next(c)
			case at.refuse == nil:
				return err
			}
			s.noteRefusal(c, err)
			return at.refuse(c, err)
		}
	}
}

// enter puts the caller into the request's context, if they may ask, and takes a place for the
// request until leave.
func (s *Server) enter(c echo.Context, role access.Role, at clients) (leave func(), err error) {
	if err := frontdoor.Reserve(c.Request().Context(), 0); err != nil {
		return nil, err
	}
	who := caller(c)
	if s.config.Access != nil {
		who, err = s.admit(c, role, at)
		// for the log, also of one who is refused
		c.SetRequest(c.Request().WithContext(access.With(c.Request().Context(), who)))
		if err != nil {
			return nil, err
		}
	} else if err = s.checkCertificate(c); err != nil {
		return nil, err
	}
	return placeFor(&s.quotas.requests, who.Principal, "as many requests are under way here as may be, or as many of this principal while others have some")
}

// admit finds the caller, and whether they have the role and have not asked too often.
func (s *Server) admit(c echo.Context, role access.Role, at clients) (access.Caller, error) {
	caller, err := s.identify(c, at)
	if err != nil {
		return caller, err
	}
	if err := s.rateLimit(c, caller); err != nil {
		return caller, err
	}
	switch {
	case caller.May(role):
		return caller, nil
	case caller.Principal == "":
		return caller, unauthorized(c, "", "this route needs role "+role.String()+": show a key as Authorization: Bearer cck_…, or as X-API-Key, or a client certificate")
	}
	challenge(c, `error="insufficient_scope", scope="`+role.String()+`"`)
	return caller, &fault{wire.Forbidden, "role", "this route needs " + role.String() + ", and this caller has " + caller.Role.String()}
}

// identify finds the caller by the key that is shown, else by the certificate of the connection,
// else as an anonymous one. What is shown and wrong is refused, a certificate that has ended since
// the connection began included. Where access is not controlled it is everybody.
func (s *Server) identify(c echo.Context, at clients) (access.Caller, error) {
	if err := s.checkCertificate(c); err != nil {
		return access.Caller{}, err
	}
	if s.config.Access == nil {
		return access.Everybody, nil
	}
	key, err := keyOf(c.Request().Header)
	if err != nil {
		return access.Caller{}, unauthorized(c, "invalid_request", err.Error())
	}
	if key == "" && at.key != nil {
		key = at.key(c)
	}
	if key != "" {
		return s.byKey(c, key)
	}
	if caller, ok := s.byCertificate(c.Request()); ok {
		return caller, nil
	}
	if at.own != nil {
		if caller, ok := at.own(c); ok {
			return caller, nil
		}
	}
	return s.config.Access.Anonymous(), nil
}

// recognized is who shows a key or a certificate that is known, or anonymous; the zero Caller for a
// wrong key, and where access is not controlled. It refuses and counts nothing.
func (s *Server) recognized(request *http.Request) access.Caller {
	if s.config.Access == nil {
		return access.Caller{}
	}
	if key, err := keyOf(request.Header); err != nil || key != "" {
		caller, _ := s.config.Access.Key(key) // the zero Caller beside an error
		return caller
	}
	if caller, ok := s.byCertificate(request); ok {
		return caller
	}
	return s.config.Access.Anonymous()
}

// byCertificate finds whose the client certificate of a connection is. ok is false if it is not
// known, or there is none.
func (s *Server) byCertificate(request *http.Request) (caller access.Caller, ok bool) {
	if connection := request.TLS; connection != nil && len(connection.VerifiedChains) > 0 && s.certificateFault(request) == "" {
		return s.config.Access.Certificate(connection.PeerCertificates[0])
	}
	return access.Caller{}, false
}

// byKey finds whose a key is. A right one passes whatever was tried before it; who shows wrong ones
// again and again is told later each time to wait, and has to connect anew where that cannot be.
func (s *Server) byKey(c echo.Context, key string) (access.Caller, error) {
	caller, err := s.config.Access.Key(key)
	switch {
	case errors.Is(err, access.ErrNotRead):
		return caller, err
	case errors.Is(err, access.ErrExpired):
		return caller, unauthorized(c, "invalid_token", "the key's time is over")
	case err != nil:
		from := remote(c)
		if wait := s.lockout.Failed(from, key); wait > 0 {
			if !s.lockout.Hold(c.Request().Context(), from) {
				c.Response().Header().Set(echo.HeaderConnection, "close")
			}
			return caller, &access.TooOften{Wait: wait}
		}
		return caller, unauthorized(c, "invalid_token", "this key is not known here")
	}
	return caller, nil
}

// remote is the address that a request comes from: of IPv6 the network, of which one host can have
// all addresses.
func remote(c echo.Context) netip.Addr {
	at, err := netip.ParseAddr(c.RealIP())
	if err != nil {
		return netip.Addr{}
	}
	if at = at.Unmap(); at.Is6() {
		network, err := at.WithZone("").Prefix(64)
		if err == nil {
			return network.Addr()
		}
	}
	return at
}

var errTwoKeys = errors.New("one key belongs into a request, once: as Authorization: Bearer cck_…, or as X-API-Key")

// keyOf reads the key of a request's header; "" if it shows none.
func keyOf(header http.Header) (string, error) {
	bearers, plain := header.Values(echo.HeaderAuthorization), header.Values("X-Api-Key")
	switch {
	case len(bearers)+len(plain) == 0:
		return "", nil
	case len(bearers)+len(plain) > 1:
		return "", errTwoKeys
	case len(plain) == 1:
		return notEmpty(plain[0])
	}
	scheme, key, _ := strings.Cut(bearers[0], " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return "", errTwoKeys
	}
	return notEmpty(strings.TrimLeft(key, " "))
}

func notEmpty(key string) (string, error) {
	if key == "" {
		return "", errTwoKeys
	}
	return key, nil
}

// unauthorized refuses a caller who is not known, as RFC 6750 says; without an error of its, one
// who showed nothing.
func unauthorized(c echo.Context, bearerError, detail string) error {
	if bearerError == "" {
		challenge(c, "")
	} else {
		challenge(c, `error="`+bearerError+`"`)
	}
	return &fault{wire.Unauthorized, echo.HeaderAuthorization, detail}
}

// challenge tells how to say who one is.
func challenge(c echo.Context, more string) {
	text := `Bearer realm="coatcheck"`
	if more != "" {
		text += ", " + more
	}
	c.Response().Header().Set(echo.HeaderWWWAuthenticate, text)
}

// caller is who is asking. Where access is not controlled, and where a route is asked for past its
// role, everybody is an admin.
func caller(c echo.Context) access.Caller { return access.From(c.Request().Context()) }

// mayTouch refuses a name that is not among those of the caller, in the same way whether there is
// something of that name or not.
func mayTouch(c echo.Context, field, name string) error {
	if caller(c).Names.Allow(name) {
		return nil
	}
	return &fault{wire.Forbidden, field, "outside of the names that this caller may touch"}
}

// mustBe refuses a caller of a lower role where a part of the request needs more than its route.
func mustBe(c echo.Context, role access.Role, field string) error {
	who := caller(c)
	if who.May(role) {
		return nil
	}
	challenge(c, `error="insufficient_scope", scope="`+role.String()+`"`)
	return &fault{wire.Forbidden, field, "this needs role " + role.String() + ", and this caller has " + who.Role.String()}
}

// pattern is braces of a route's path.
func (s *Server) pattern(path string) string {
	if known, ok := s.patterns[path]; ok {
		return known
	}
	return braces(path)
}

// braces writes Echo's /token/:token as /token/{token}.
func braces(path string) string {
	segments := strings.Split(path, "/")
	for i, segment := range segments {
		if name, ok := strings.CutPrefix(segment, ":"); ok {
			segments[i] = "{" + name + "}"
		}
	}
	return strings.Join(segments, "/")
}
