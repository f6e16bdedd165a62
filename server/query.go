package server

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/names"
)

// allowQuery refuses query parameters that a route does not know, and those that come twice: a
// misspelt one must not be a silent default.
func allowQuery(known ...string) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			if err := onlyQuery(c, known); err != nil {
				return err
			}
			return next(c)
		}
	}
}

func onlyQuery(c echo.Context, known []string) error {
	if c.Request().URL.RawQuery == "" {
		return nil
	}
	query, err := url.ParseQuery(c.Request().URL.RawQuery)
	if err != nil {
		return invalid("query", "not percent-encoded as it should be")
	}
	for name, values := range query {
		if !slices.Contains(known, name) {
			return invalid(names.Printable(name), "unknown query parameter; this route knows: "+
				strings.Join(append(slices.Clone(known), "no others"), ", "))
		}
		if len(values) > 1 {
			return invalid(name, "given more than once")
		}
	}
	return nil
}

func has(c echo.Context, field string) bool {
	return c.Request().URL.RawQuery != "" && c.QueryParams().Has(field)
}

// handsOut is for routes that hand something out for good, by a GET as well: it refuses a browser
// that prefetches, and a precondition as for any request that changes something.
func handsOut(next echo.HandlerFunc) echo.HandlerFunc {
	next = conditional(unnamed)(next)
	return func(c echo.Context) error {
		if isPrefetch(c.Request()) {
			return &fault{api.Forbidden, "Sec-Purpose", "a prefetch must not take what is handed out once"}
		}
		return next(c)
	}
}

// isPrefetch reports whether a browser prefetches an answer that its user may never want.
func isPrefetch(r *http.Request) bool {
	for _, name := range []string{"Sec-Purpose", "Purpose", "X-Purpose", "X-Moz"} {
		value := strings.ToLower(r.Header.Get(name))
		if strings.Contains(value, "prefetch") || strings.Contains(value, "prerender") || strings.Contains(value, "preview") {
			return true
		}
	}
	return false
}
