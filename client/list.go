package client

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"strings"
)

// list asks for the names with a prefix under a path, page by page, and ends with the first error.
// read takes a page apart: its entries, nil if it is no list, and the name after which the next
// page begins, "" if this is the last.
func list[page, item any](
	ctx context.Context, c *Client, op, path, prefix string, read func(page) (listed []item, next string),
) iter.Seq2[item, error] {
	return func(yield func(item, error) bool) {
		for cursor := ""; ; {
			var answer page
			query := map[string]string{"prefix": prefix, "cursor": cursor}
			get := call{op: op, method: http.MethodGet, path: withQuery(path, query), into: &answer}
			err := c.exchange(ctx, get)
			listed, next := read(answer)
			// which would never end
			if err == nil && (listed == nil || next != "" && next <= cursor) {
				err = get.unreadable()
			}
			if err != nil {
				var none item
				yield(none, err)
				return
			}
			for _, one := range listed {
				if !yield(one, nil) {
					return
				}
			}
			if next == "" {
				return
			}
			cursor = next
		}
	}
}

// withQuery is a path with those of the values in its query that are not empty.
func withQuery(path string, values map[string]string) string {
	query := url.Values{}
	for name, value := range values {
		if value != "" {
			query.Set(name, value)
		}
	}
	switch {
	case len(query) == 0:
		return path
	case strings.Contains(path, "?"):
		return path + "&" + query.Encode()
	}
	return path + "?" + query.Encode()
}
