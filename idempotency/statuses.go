package idempotency

import (
	"fmt"
	"net/http"
	"regexp"
	"strconv"
)

// statuses are the HTTP statuses whose answers a route records. The zero value is all but those
// with which a service asks for the request again, elsewhere or otherwise, before it does anything:
// 307, 308, 401, 403, 407, 408, 421, 425 and 429.
type statuses map[int]bool

var statusForm = regexp.MustCompile(`^[2-5](xx|\d\d)$`)

// parseStatuses reads a list such as 2xx, 4xx, 503.
func parseStatuses(list []string) (statuses, error) {
	if list == nil {
		return nil, nil //nolint:nilnil // nil is the list of all but a few
	}
	set := statuses{}
	for _, text := range list {
		if !statusForm.MatchString(text) {
			return nil, fmt.Errorf("status %q: a status such as 201, or a class such as 2xx", text)
		}
		class := int(text[0]-'0') * 100
		if one, err := strconv.Atoi(text); err == nil {
			set[one] = true
			continue
		}
		for status := class; status < class+100; status++ {
			set[status] = true
		}
	}
	return set, nil
}

func (s statuses) has(status int) bool {
	if s != nil {
		return s[status]
	}
	switch status {
	case http.StatusTemporaryRedirect, http.StatusPermanentRedirect, http.StatusUnauthorized, http.StatusForbidden,
		http.StatusProxyAuthRequired,
		http.StatusRequestTimeout, http.StatusMisdirectedRequest, http.StatusTooEarly, http.StatusTooManyRequests:
		return false
	}
	return true
}
