package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

// effects remembers how many effects there were, where the server tells.
type effects struct {
	suite  *suite
	before int64
}

// counts says whether the server tells how many effects there were.
func (s *suite) counts() bool { return s.o.countURL != "" }

// effects reads how many effects there were up to now.
func (s *suite) effects(ctx context.Context) effects {
	return effects{s, s.count(ctx)}
}

// moved checks that there were so many effects since; where the server does not tell, it passes.
func (e effects) moved(ctx context.Context, by int64, a answer) {
	if now := e.suite.count(ctx); e.suite.counts() && now != e.before+by {
		end(&failure{
			a.request.String(), fmt.Sprintf("%s; %s went from %d to %d", a, e.suite.o.countURL, e.before, now),
			fmt.Sprintf("%d: exactly %d more", e.before+by, by),
		})
	}
}

func (s *suite) count(ctx context.Context) int64 {
	if !s.counts() {
		return 0
	}
	a := s.send(ctx, request{url: s.o.at(s.o.countURL), method: http.MethodGet, extra: s.o.extra})
	decoder := json.NewDecoder(strings.NewReader(string(a.body)))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil || a.status != http.StatusOK {
		failf(a, "200 with JSON that tells the number of effects")
	}
	number, ok := member(value, s.o.countField).(json.Number)
	if !ok {
		failf(a, "a number in %s", s.o.countField)
	}
	count, err := number.Int64()
	if err != nil {
		failf(a, "an integer in %s", s.o.countField)
	}
	return count
}

// member finds a field of a JSON object; dots in its name go deeper. nil if there is none.
func member(value any, name string) any {
	for part := range strings.SplitSeq(name, ".") {
		object, ok := value.(map[string]any)
		if !ok {
			return nil
		}
		value = object[part]
	}
	return value
}

// issue gets a token from the server, for a principal or for the caller that the headers name.
func (s *suite) issue(ctx context.Context, principal field) string {
	r := request{url: s.o.at(s.o.tokenURL), method: http.MethodPost, contentType: "application/json", body: s.o.tokenBody, extra: s.o.extra}
	a := s.send(ctx, r.with(principal))
	token, _ := member(any(a.object()), s.o.tokenField).(string)
	if !a.ok() || token == "" {
		failf(a, "a 2xx with JSON that has a token in %s", s.o.tokenField)
	}
	return token
}
