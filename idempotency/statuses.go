package idempotency

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"sync"

	"github.com/coatcheck/coatcheck/internal/lazyregexp"
)

// ending is how an operation ends once its handler has answered.
type ending byte

const (
	recorded ending = iota + 1 // every repeat gets the answer
	freed                      // the key is free: the next request runs
	doubted                    // nobody knows whether it happened
)

// statuses are the endings that a route's lists give to statuses.
type statuses struct {
	// of "503", of a class such as "5xx", and, as "", of a status that stands in no list
	endings map[string]ending
	told    sync.Map // statuses of which the log has said that their answers are kept
}

// usuallyDoubted are the statuses with which proxies and time limits answer while the work may run
// on, without those that the route keeps or that free its keys.
func (r Route) usuallyDoubted() []string {
	return slices.DeleteFunc([]string{"408", "502", "503", "504"}, func(status string) bool {
		return slices.Contains(r.Keep, status) || slices.Contains(r.Frees, status)
	})
}

var statusForm = lazyregexp.New(`^[2-5](xx|\d\d)$`)

// statuses reads the route's lists. The error has every fault.
func (r Route) statuses() (*statuses, error) {
	endings := map[string]ending{"": recorded}
	if r.Keep != nil {
		endings[""] = doubted
	}
	var faults []error
	for _, list := range []struct {
		name     string
		statuses []string
		ending   ending
	}{{"keep", r.Keep, recorded}, {"frees", r.Frees, freed}, {"doubts", r.Doubts, doubted}} {
		for _, text := range list.statuses {
			switch {
			case !statusForm().MatchString(text):
				faults = append(faults, fmt.Errorf("%s: status %q: a status such as 201, or a class such as 2xx", list.name, text))
			case endings[text] != 0 && endings[text] != list.ending:
				faults = append(faults, fmt.Errorf("%s: status %s is in another list too: an answer is kept, frees the key or leaves it in doubt",
					list.name, text))
			}
			endings[text] = list.ending
		}
	}
	return &statuses{endings: endings}, errors.Join(faults...)
}

// of returns the ending for a status. A status counts before its class.
func (s *statuses) of(status int) ending {
	text := strconv.Itoa(status)
	return cmp.Or(s.endings[text], s.endings[text[:1]+"xx"], s.endings[""])
}

// Doubtful reports whether an answer of this status leaves an operation in doubt on a route that
// passes Check.
func (r Route) Doubtful(status int) bool {
	set, err := r.WithDefaults().statuses()
	return err == nil && set.of(status) == doubted
}

// tell logs, once for each status of a route, that an answer is kept with which services mostly ask
// for the request again: the operator says in a list which it is here.
func (s *statuses) tell(ctx context.Context, log *slog.Logger, route string, answer Answer) {
	if s == nil || s.endings[strconv.Itoa(answer.Status)] != 0 || !asksAgain(answer) {
		return
	}
	if _, told := s.told.LoadOrStore(answer.Status, true); told {
		return
	}
	log.WarnContext(ctx, "idempotency: an answer that may ask for the request again is kept: every repeat gets it. If nothing was done, let "+
		"the service say so (Idempotency-Not-Begun: true at a gateway, Attempt.NotBegun in Go) or list the status under frees; "+
		"if it is an answer, under keep", "route", route, "status", answer.Status)
}

func asksAgain(answer Answer) bool {
	switch answer.Status {
	case http.StatusTemporaryRedirect, http.StatusPermanentRedirect, http.StatusUnauthorized, http.StatusForbidden, http.StatusRequestTimeout,
		http.StatusMisdirectedRequest, http.StatusTooEarly, http.StatusTooManyRequests:
		return true
	}
	return answer.Status == http.StatusServiceUnavailable && answer.Header.Get("Retry-After") != ""
}
