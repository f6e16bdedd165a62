package server

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/coatcheck/coatcheck/access"
	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/frontdoor"
)

// A page of any origin can make a browser that reaches the service send requests. This file bounds
// that by the names that the service answers to, and by what other origins' pages may ask for.

// SetAllowedHosts replaces [Config].AllowedHosts for later requests. It is safe for concurrent use.
func (s *Server) SetAllowedHosts(names []string) {
	hosts := frontdoor.Hosts(names)
	s.hosts.Store(&hosts)
}

func (s *Server) allowedHosts() frontdoor.Hosts { return *s.hosts.Load() }

// ownName refuses a request under a name that is none of the service's. Where keys are asked for,
// no page has one, and every name is good unless some are set.
func (s *Server) ownName(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		hosts := s.allowedHosts()
		free := s.config.Access != nil && len(hosts) == 0
		if !free && !hosts.Allow(c.Request().Host) {
			return &fault{api.Forbidden, "Host", frontdoor.HostRule}
		}
		return next(c)
	}
}

// ownPages refuses requests that a page of another origin made a browser send, but for looks.
func (s *Server) ownPages(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		if !s.onlyLooks(c) && s.origins.Load().Foreign(c.Request()) {
			return &fault{api.Forbidden, echo.HeaderOrigin,
				"a page of another origin may not have a browser ask for this; --cors-origins names those that may"}
		}
		return next(c)
	}
}

// onlyLooks reports whether a request changes nothing and takes nothing that others then lack, such
// as a subscriber's place at the events.
func (s *Server) onlyLooks(c echo.Context) bool {
	switch method := c.Request().Method; method {
	case http.MethodGet, http.MethodHead:
		return s.known[method+" "+c.Path()].Role < access.Use && !isStream(c)
	case http.MethodOptions:
		return true
	}
	return false
}
