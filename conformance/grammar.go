package main

import (
	"context"
	"net/http"
	"strings"
)

// malformed is a way to write a header that is no key, with all spellings of it that are tried. A
// spelling is the fields of the header.
type malformed struct {
	name      string
	level     level
	what      string
	spellings func(s *suite, key string) [][]string
}

// one makes a spelling of one field of each text.
func one(texts ...string) (spellings [][]string) {
	for _, text := range texts {
		spellings = append(spellings, []string{text})
	}
	return spellings
}

var malformedKeys = []malformed{
	{"key-bad-escape", must, "a string with a backslash before anything but a quote and a backslash", func(_ *suite, k string) [][]string {
		return one(`"`+k+`\n"`, `"\`+k+`"`)
	}},
	{"key-unterminated", must, "a string whose last quote is missing", func(_ *suite, k string) [][]string {
		return one(`"`+k, `"`+k+`\"`)
	}},
	{"key-list", must, "a list of keys", func(_ *suite, k string) [][]string {
		return one(`"`+k+`", "`+k+`-2"`, k+`, `+k+`-2`, `"`+k+`",`)
	}},
	{"key-trailing-text", must, "a string with more text after it", func(_ *suite, k string) [][]string {
		return one(`"`+k+`" x`, `"`+k+`"x`, `"`+k+`""x"`)
	}},
	{"key-parameters", promise, "a key with parameters, which the draft gives no meaning,", func(_ *suite, k string) [][]string {
		return one(`"`+k+`";v=1`, k+`;v=1`)
	}},
	{"key-non-ascii", must, "a key with a character that is not ASCII", func(_ *suite, k string) [][]string {
		return one(`"`+k+`-é"`, k+`-é`)
	}},
	{"key-empty", must, "a header without a value", func(*suite, string) [][]string { return one("") }},
	{"key-empty-string", promise, "the empty string", func(*suite, string) [][]string { return one(`""`) }},
	{"key-two-fields", must, "a request with two header fields", func(_ *suite, k string) [][]string {
		return [][]string{{`"` + k + `"`, `"` + k + `-2"`}, {`"` + k + `"`, `"` + k + `"`}, {k, k}}
	}},
	{"key-too-long", promise, "a key that is too long (-long-key)", func(s *suite, k string) [][]string {
		long := k + strings.Repeat("x", s.o.longKey-len(k))
		return one(`"`+long+`"`, long)
	}},
}

// look sends every spelling. Afterwards the right form of the same key has to work as a new one.
func (m malformed) look(ctx context.Context, s *suite) {
	key := s.newKey(ctx)
	e := s.effects(ctx)
	for _, spelling := range m.spellings(s, key) {
		s.refused(ctx, e, s.request("").keyed(spelling...), http.StatusBadRequest)
	}
	e.moved(ctx, 1, s.fresh(ctx, s.request(key), "a malformed header"))
}

// refused sends a request that has to be refused with a status and must run nothing.
func (s *suite) refused(ctx context.Context, e effects, r request, status int) {
	e.moved(ctx, 0, s.expect(ctx, r, status))
}

func headerMissing(ctx context.Context, s *suite) {
	e := s.effects(ctx)
	s.refused(ctx, e, s.request("").keyed(), http.StatusBadRequest)
}

// quotedAndBare looks both ways: a server may keep the quotes, or read bare keys differently.
func quotedAndBare(ctx context.Context, s *suite) {
	if s.o.issued() {
		end(notApplicable("issued tokens are always bare"))
	}
	for _, bareFirst := range []bool{false, true} {
		key := s.newKey(ctx)
		first, repeat := s.request(key), s.request(key).keyed(key)
		if bareFirst {
			first, repeat = repeat, first
		}
		s.twice(ctx, first, repeat)
	}
}

// escapes sends keys that differ only after an escaped quote and an escaped backslash.
func escapes(ctx context.Context, s *suite) {
	if s.o.issued() {
		end(notApplicable("issued tokens have no escapes"))
	}
	key := s.newKey(ctx)
	r := s.request("").keyed(`"` + key + `\"q\\1"`)
	s.twice(ctx, r, r)
	s.differ(ctx, r, r.keyed(`"`+key+`\"q\\2"`), r.keyed(`"`+key+`q2"`))
}

func keysDiffer(ctx context.Context, s *suite) {
	key := s.newKey(ctx)
	r := s.request(key)
	if s.o.issued() {
		s.differ(ctx, r, s.request(s.newKey(ctx)))
	} else {
		s.differ(ctx, r, s.request(key+"-2"), s.request(strings.ToUpper(key)))
	}
}

// twice sends two requests that are one operation: the second gets the first one's answer, and
// there is one effect.
func (s *suite) twice(ctx context.Context, r, repeat request) {
	e := s.effects(ctx)
	first := s.first(ctx, r)
	e.moved(ctx, 1, s.repeated(ctx, repeat, first))
}

// differ sends requests that are operations of their own; the first one may have been sent before.
// Each has its effect and keeps its answer. Without a count the answers have to differ.
func (s *suite) differ(ctx context.Context, requests ...request) {
	var answers []answer
	var e effects
	bodies := map[string]bool{}
	for i, r := range requests {
		a := s.first(ctx, r)
		if i == 0 {
			e = s.effects(ctx)
		} else {
			e.moved(ctx, int64(i), a)
		}
		if i > 0 && s.marked(a) || !s.counts() && bodies[string(a.body)] {
			failf(a, "an answer of its own: it is another operation than %s", requests[0])
		}
		bodies[string(a.body)] = true
		answers = append(answers, a)
	}
	for _, first := range answers {
		e.moved(ctx, int64(len(requests)-1), s.again(ctx, first))
	}
}
