package segment

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/coatcheck/coatcheck/redisstore"
)

// stripesError is why no store gave a range, in asking order, and of one class: its worst error's.
type stripesError []stripeFault

type stripeFault struct {
	index int64
	err   error
}

// errPassedOver is why a store was not asked.
var errPassedOver = errors.New("passed over, since it was away a moment ago")

func unavailable(cause error) error {
	return &redisstore.Error{Op: "striped take", Class: redisstore.ErrUnavailable, Cause: cause}
}

// answered reports whether one of the stores has answered with a refusal.
func (f stripesError) answered() bool {
	return slices.ContainsFunc(f, func(fault stripeFault) bool { return !away(fault.err) })
}

// away reports whether a store could not be asked, or did not answer.
func away(err error) bool {
	return errors.Is(err, redisstore.ErrUnknownOutcome) || errors.Is(err, redisstore.ErrUnavailable)
}

func (f stripesError) Error() string {
	texts := make([]string, 0, len(f))
	for _, fault := range f {
		texts = append(texts, fmt.Sprintf("stripe %d: %v", fault.index, fault.err))
	}
	return strings.Join(texts, "; ")
}

// Unwrap returns the error that decides what to do next.
func (f stripesError) Unwrap() error {
	worst := f[0].err
	for _, fault := range f[1:] {
		if weight(fault.err) > weight(worst) {
			worst = fault.err
		}
	}
	return worst
}

// weight ranks the stores' answers: what one does not know, another that is away may.
func weight(err error) int {
	switch {
	case errors.Is(err, ErrUnknownTag):
		return 0
	case errors.Is(err, ErrExhausted):
		return 1
	case errors.Is(err, redisstore.ErrUnknownOutcome):
		return 4
	case errors.Is(err, redisstore.ErrUnavailable):
		return 3
	}
	return 2
}
