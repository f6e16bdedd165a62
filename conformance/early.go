package main

import (
	"context"
	"net/http"
	"strings"
)

// earlyBody is how much space follows a payload that the service does not read to its end: more
// than it takes at once, less than servers refuse.
const earlyBody = 900 << 10

// earlyAnswer sends large payloads that the service answers unread. Whether such an answer is lost
// on the way is a race, so there are several.
func earlyAnswer(ctx context.Context, s *suite) {
	e := s.effects(ctx)
	const rounds = 10
	var last answer
	for range rounds {
		r := s.request(s.newKey(ctx)).with(s.o.earlyHeader)
		r.body += strings.Repeat(" ", earlyBody) // JSON of the same value
		for range 2 {
			last = s.send(ctx, r)
			if last.status < http.StatusBadRequest || last.status >= http.StatusInternalServerError || s.isUnknown(last) {
				failf(last, "the 4xx of the service, which it sent before it had read the payload")
			}
		}
	}
	e.moved(ctx, 0, last)
}
