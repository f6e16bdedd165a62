package server

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/coatcheck/coatcheck/internal/frontdoor"
	"github.com/coatcheck/coatcheck/internal/names"
	"github.com/coatcheck/coatcheck/internal/wire"
)

const nameRule = names.Rule + ", percent-decoded once"

// name reads a name from the path, where the route's template says, if the caller may touch it.
// Echo gives some parameters decoded and others not, so this reads the path as it came and decodes
// the segment exactly once.
func name(c echo.Context, param string) (string, error) {
	escaped, err := segmentOf(c, param)
	if err != nil {
		return "", err
	}
	text, err := url.PathUnescape(escaped)
	if err != nil || !names.Valid(text) {
		return "", &fault{wire.InvalidName, param, nameRule}
	}
	return text, mayTouch(c, param, text)
}

// segmentOf finds a parameter's part of the path by the template, which has as many segments as the
// path.
func segmentOf(c echo.Context, param string) (string, error) {
	template, path := c.Path(), frontdoor.RawPath(c.Request().URL)
	for more := true; more; {
		var wanted, found string
		wanted, template, more = strings.Cut(template, "/")
		found, path, _ = strings.Cut(path, "/")
		if strings.HasPrefix(wanted, ":") && wanted[1:] == param {
			return found, nil
		}
	}
	return "", echo.ErrNotFound
}

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
			return invalid(printable(name), "unknown query parameter; this route knows: "+strings.Join(append(slices.Clone(known), "no others"), ", "))
		}
		if len(values) > 1 {
			return invalid(name, "given more than once")
		}
	}
	return nil
}

// printable shortens what a client chose, and escapes what is not plain text, before it is said
// back.
func printable(text string) string {
	if len(text) > 40 {
		text = text[:40] + "…"
	}
	quoted := strconv.QuoteToASCII(text)
	return quoted[1 : len(quoted)-1]
}

// has reports whether a query has a field.
func has(c echo.Context, field string) bool {
	return c.Request().URL.RawQuery != "" && c.QueryParams().Has(field)
}

// queryInt reads a whole number from the query, within bounds; absent means its default.
func queryInt(c echo.Context, field string, absent, least, most int64) (int64, error) {
	if !has(c, field) {
		return absent, nil
	}
	n, err := strconv.ParseInt(c.QueryParam(field), 10, 64)
	if err != nil || n < least || n > most || strconv.FormatInt(n, 10) != c.QueryParam(field) {
		return 0, invalid(field, fmt.Sprintf("a whole number from %d to %d", least, most))
	}
	return n, nil
}

// queryFlag reads true or false from the query; absent is false.
func queryFlag(c echo.Context, field string) (bool, error) {
	switch text := c.QueryParam(field); {
	case !has(c, field), text == "false":
		return false, nil
	case text == "true":
		return true, nil
	}
	return false, invalid(field, "true or false")
}

// queryTime reads a moment from the query; the zero time if it is not there.
func queryTime(c echo.Context, field string) (time.Time, error) {
	if !has(c, field) {
		return time.Time{}, nil
	}
	at, err := time.Parse(time.RFC3339, c.QueryParam(field))
	if err != nil || at.Before(time.Unix(0, 0)) {
		return time.Time{}, invalid(field, "a time is RFC 3339, such as 2020-01-01T00:00:00Z")
	}
	return at.UTC(), nil
}

// millis reads a duration field, within bounds; nil means its default.
func millis(field string, value *int64, absent, least, most time.Duration) (time.Duration, error) {
	if value == nil {
		return absent, nil
	}
	if *value < least.Milliseconds() || *value > most.Milliseconds() {
		return 0, invalid(field, fmt.Sprintf("%d to %d milliseconds", least.Milliseconds(), most.Milliseconds()))
	}
	return time.Duration(*value) * time.Millisecond, nil
}

// handsOut is for routes that hand something out for good: a browser that asks ahead of its user is
// refused.
func handsOut(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		if isPrefetch(c.Request()) {
			return &fault{wire.Forbidden, "Sec-Purpose", "a prefetch must not take what is handed out once"}
		}
		return next(c)
	}
}

// isPrefetch reports whether a browser asks ahead of its user, who may never want the answer.
func isPrefetch(r *http.Request) bool {
	for _, name := range []string{"Sec-Purpose", "Purpose", "X-Purpose", "X-Moz"} {
		value := strings.ToLower(r.Header.Get(name))
		if strings.Contains(value, "prefetch") || strings.Contains(value, "prerender") || strings.Contains(value, "preview") {
			return true
		}
	}
	return false
}

const leaseHeader = "Lease-Token"

// leaseToken reads the header that proves a lease.
func leaseToken(c echo.Context) (string, error) {
	tokens := c.Request().Header.Values(leaseHeader)
	if len(tokens) != 1 || tokens[0] == "" {
		return "", invalid(leaseHeader, "this header belongs here once: the lease as it was granted")
	}
	return tokens[0], nil
}

// wantsText reports whether the client asked for bare digits.
func wantsText(c echo.Context) bool {
	accept := strings.Join(c.Request().Header.Values(echo.HeaderAccept), ",")
	return strings.Contains(accept, echo.MIMETextPlain) && !strings.Contains(accept, echo.MIMEApplicationJSON)
}

// noStore marks an answer that must not be stored on the way: it hands something out or changes
// something.
func noStore(c echo.Context) { c.Response().Header().Set(echo.HeaderCacheControl, "no-store") }

func byteCount(n int64) string { return strconv.FormatInt(n, 10) + " bytes" }

// queryPage reads where a page of names begins.
func queryPage(c echo.Context) (prefix, cursor string, err error) {
	prefix, cursor = c.QueryParam("prefix"), c.QueryParam("cursor")
	for _, field := range []string{"prefix", "cursor"} {
		if text := c.QueryParam(field); text != "" && !names.Valid(text) {
			return "", "", invalid(field, nameRule)
		}
	}
	return prefix, cursor, nil
}

// sendNumber answers with JSON, or with bare digits for a client that asked for text.
func sendNumber(c echo.Context, value int64, message any) error {
	noStore(c)
	if wantsText(c) {
		return c.String(http.StatusOK, strconv.FormatInt(value, 10)+"\n")
	}
	return c.JSON(http.StatusOK, message)
}
