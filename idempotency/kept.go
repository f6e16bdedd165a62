package idempotency

import (
	"maps"
	"net/http"
	"net/textproto"
	"slices"
	"strings"
)

// maxKeptHeader is how many bytes of an answer's headers are recorded.
const maxKeptHeader = 64 << 10

// kept returns an answer with the headers that are recorded: those that the handler has set, and
// not those of middleware outside of the guard, which sets them anew for each request; a header of
// theirs that the handler has removed is one without values. If the headers are too large, only the
// status is recorded.
func (r *recorder) kept(answer Answer) Answer {
	header, outer := maps.Clone(r.header), r.ResponseWriter.Header()
	for name := range outer {
		if _, isThere := header[name]; !isThere {
			header[name] = nil
		}
	}
	removeUnsafe(header)
	for name, values := range header {
		if before, isThere := outer[name]; isThere && slices.Equal(values, before) {
			delete(header, name)
		}
	}
	takeTrailers(header, r.header)
	answer.Header = header
	return answer.limited()
}

// recordable is an answer that no handler has written, with the headers that are recorded.
func (a Answer) recordable() Answer {
	a.Header = maps.Clone(a.Header)
	removeUnsafe(a.Header)
	return a.limited()
}

// limited is an answer of which only the status is recorded if its headers are too large.
func (a Answer) limited() Answer {
	if (Answer{Header: a.Header}).size() > maxKeptHeader {
		a.Header, a.Body, a.NotKept = nil, nil, true
	}
	return a
}

// takeTrailers removes from a header the fields that another declares as trailers, and returns
// them: nil if there are none. net/http would send them as headers as well.
func takeTrailers(header, declaring http.Header) http.Header {
	var trailers http.Header
	for _, declared := range declaring.Values("Trailer") {
		for name := range strings.SplitSeq(declared, ",") {
			name = http.CanonicalHeaderKey(textproto.TrimString(name))
			if values, isThere := header[name]; isThere {
				if trailers == nil {
					trailers = http.Header{}
				}
				trailers[name] = values
				delete(header, name)
			}
		}
	}
	return trailers
}
