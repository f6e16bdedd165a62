package server

import (
	"context"
	"strings"

	"github.com/labstack/echo/v4"
)

// pageOf reads a page of a list of names, as far as the caller may see them. list reads up to n
// entries whose names begin with a prefix and come after a cursor, in the order of their bytes, and
// reports whether there may be more of them.
func pageOf[T any](c echo.Context, prefix, cursor string, n int, nameOf func(T) string, list func(prefix, cursor string, n int) ([]T, bool, error)) (page []T, more bool, err error) {
	spans := caller(c).Names.Spans(prefix)
	for i, span := range spans {
		if span.Prefix < cursor && !strings.HasPrefix(cursor, span.Prefix) {
			continue // all of it is before the cursor
		}
		want := n - len(page)
		if want == 0 {
			return page, true, nil
		}
		if span.Exact {
			want = 1
		}
		found, others, err := list(span.Prefix, cursor, want)
		if err != nil {
			return nil, false, err
		}
		if span.Exact && (len(found) == 0 || nameOf(found[0]) != span.Prefix) {
			continue
		}
		page = append(page, found...)
		if others && !span.Exact {
			return page, true, nil
		}
		more = i < len(spans)-1
	}
	return page, more && len(page) == n, nil
}

// listNames lists names for pageOf.
func listNames(c echo.Context, list func(ctx context.Context, prefix, cursor string, n int) ([]string, error)) func(prefix, cursor string, n int) ([]string, bool, error) {
	return func(prefix, cursor string, n int) ([]string, bool, error) {
		names, err := list(c.Request().Context(), prefix, cursor, n)
		return names, len(names) == n, err
	}
}

func itself(name string) string { return name }
