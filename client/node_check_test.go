//go:build check

package client_test

import (
	"path/filepath"
	"testing"

	"github.com/coatcheck/coatcheck/client"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
)

// The program asserts what each subject of the client does; it ends with "ok" or fails.
func TestNodeClientAgainstAService(t *testing.T) {
	t.Parallel()
	s := serve(t, open(t, redistest.Start(t).URL()))
	_, err := s.CreatePool(t.Context(), "shop", client.PoolShape{})
	must(t, "CreatePool", err)
	program := filepath.Join("against", "service.mjs")
	expect.Equal(t, program, ran(t, "../clients/node", "node", program, s.url), "ok\n")
}
