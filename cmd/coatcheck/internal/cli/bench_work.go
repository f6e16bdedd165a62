package cli

import (
	"context"
	"errors"
	"strconv"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/client"
	"github.com/coatcheck/coatcheck/server"
)

// What can be measured.
const (
	benchIncr    = "incr"
	benchToken   = "token"
	benchGuard   = "guard"
	benchLock    = "lock"
	benchWorker  = "worker"
	benchID      = "id"
	benchSegment = "segment"
)

var benchKinds = []string{benchIncr, benchToken, benchGuard, benchLock, benchWorker, benchID, benchSegment}

// benchNames begins every name that a measurement uses.
const benchNames = "bench:"

// work is one kind of load at one place. A nil func does nothing.
type work struct {
	call func(ctx context.Context, name string) error
	// prepares a name, before the first call
	open func(ctx context.Context, name string) error
	// removes what a name has left
	clean func(ctx context.Context, name string) error
	// what is left unless it is removed; "" = all goes by itself within minutes
	stays string
}

func benchName(what string, n, names int64) string {
	return benchNames + what + ":" + strconv.FormatInt(n%names, 10)
}

// What stays after a measurement.
const (
	staysCounter = "counters named " + benchNames + "…"
	staysPool    = "pools of worker ids named " + benchNames + "…"
	staysAnswers = "a record of about a kilobyte for each call, until the service forgets its answer"
)

// benchCode names a kind of error: by the service's code of a problem if there is one.
func benchCode(err error) string {
	if told, ok := errors.AsType[*client.Error](err); ok {
		switch {
		case told.Code != "":
			return told.Code
		case told.Status != 0:
			return "status-" + strconv.Itoa(told.Status)
		}
	}
	switch {
	case errors.Is(err, context.Canceled):
		return "cut-off"
	case errors.Is(err, client.ErrUnavailable):
		return "unreachable"
	case errors.Is(err, client.ErrUnknownOutcome):
		return string(api.OutcomeUnknown)
	}
	return server.Code(err)
}

// passing are the codes of failures that may have passed when the command runs again.
func passing(code string) bool {
	kind, known := api.Lookup(api.Code(code))
	return known && kind.Retryable || code == "unreachable"
}
