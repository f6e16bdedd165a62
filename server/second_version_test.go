package server_test

import (
	"testing"

	"github.com/coatcheck/coatcheck/api"
)

// Nothing answers below /v2/ but the problem that there is nothing: docs/stability.md.
func TestASecondVersionIsReserved(t *testing.T) {
	t.Parallel()
	s := onEmbedded(t)
	for _, path := range []string{"/v2", "/v2/", "/v2/incr/orders", "/v2/token", "/v2/console/", "/v2/livez"} {
		for _, method := range []string{"GET", "POST", "PUT", "DELETE"} {
			checkProblem(t, s.do(t, method, path, ""), api.NotFound)
		}
	}
}
