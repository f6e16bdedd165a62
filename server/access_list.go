package server

import (
	"context"
	"strings"

	"github.com/coatcheck/coatcheck/access"
	"github.com/coatcheck/coatcheck/internal/names"
	"github.com/coatcheck/coatcheck/internal/pipeline"
)

// list is the part of a list of names that a request asks for.
type list struct {
	allowed        access.Names
	prefix, cursor string
	n              int
}

// list reads the part that a request asks for, at most so many entries.
func (r *request) list(most int64) list {
	l := list{caller(r).Names, r.QueryParam("prefix"), r.QueryParam("cursor"), int(r.int("n", 100, 1, most))}
	for _, field := range []string{"prefix", "cursor"} {
		if text := r.QueryParam(field); text != "" && !names.Valid(text) {
			r.invalid(field, nameRule)
		}
	}
	return l
}

// pageOf reads the part, as far as the caller may see it. next reads up to n entries whose names
// begin with a prefix and come after a cursor, in the order of their bytes, and reports whether
// there may be more of them.
func pageOf[T any](l list, nameOf func(T) string, next func(prefix, cursor string, n int) ([]T, bool, error)) (page []T,
	more bool, err error) {
	spans := l.allowed.Spans(l.prefix)
	for i, span := range spans {
		if span.Prefix < l.cursor && !strings.HasPrefix(l.cursor, span.Prefix) {
			continue // all of it is before the cursor
		}
		want := l.n - len(page)
		if want == 0 {
			return page, true, nil
		}
		if span.Exact {
			want = 1
		}
		found, others, err := next(span.Prefix, l.cursor, want)
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
	return page, more && len(page) == l.n, nil
}

// listed reads a page of named entries, and the cursor of the next page; "" = there is none. It
// calls show for each name, for some at a time; entries that have gone meanwhile are left out.
func listed[T any](ctx context.Context, l list, names func(ctx context.Context, prefix, cursor string, n int) ([]string, string, error),
	show func(ctx context.Context, name string) (shown T, is bool, err error)) (page []T, next string, err error) {
	itself := func(name string) string { return name }
	found, more, err := pageOf(l, itself, func(prefix, cursor string, n int) ([]string, bool, error) {
		some, next, err := names(ctx, prefix, cursor, n)
		return some, next != "", err
	})
	if err != nil {
		return nil, "", err
	}
	all, are := make([]T, len(found)), make([]bool, len(found))
	err = pipeline.Together(ctx, len(found), func(ctx context.Context, i int) (err error) {
		all[i], are[i], err = show(ctx, found[i])
		return err
	})
	if err != nil {
		return nil, "", err
	}
	page = []T{} // in JSON a list, also without entries
	for i, one := range all {
		if are[i] {
			page = append(page, one)
		}
	}
	if more && len(found) > 0 {
		next = found[len(found)-1]
	}
	return page, next, nil
}
