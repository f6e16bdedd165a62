package cli

import (
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

func TestDoubtsElsewhereAreNamedAlsoWithoutARoute(t *testing.T) {
	listed := []api.Operation{{Route: "refunds"}, {}, {Route: "refunds"}}
	text := (&settlingAll{}).next(nil, listed, time.Time{}, api.DecisionRefused)
	expect.Equal(t, "where there are doubts", text, "There are some of other routes or times: refunds, (no route)\n")
}
