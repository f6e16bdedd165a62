package driver_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/internal/driver"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/redisstore"
)

// This test's program does not import package embedded.
func TestProgramWithoutTheEmbeddedStoreIsToldWhatToImport(t *testing.T) {
	_, err := redisstore.Open(t.Context(), "embedded:")
	expect.Error(t, "Open of embedded:", err, driver.ErrNone)
	expect.Contains(t, "the error", err.Error(), `import _ "github.com/coatcheck/coatcheck/embedded"`)
	expect.Error(t, "Check of embedded:", redisstore.Config{URL: "embedded:"}.Check(), driver.ErrNone)
	store, err := redisstore.Open(t.Context(), "redis://127.0.0.1:1")
	expect.Error(t, "Open of a Redis", err, nil)
	expect.Error(t, "Close", store.Close(), nil)
}

// What a service imports brings neither miniredis nor Lua with it.
func TestPackagesOfAServiceDoNotLinkTheEmbeddedStore(t *testing.T) {
	args := []string{"list", "-deps"}
	for _, name := range []string{"redisstore", "idempotency", "idempotency/echov4", "lock", "counter", "segment", "workerlease", "snowflake", "client", "access", "metrics"} {
		args = append(args, "github.com/coatcheck/coatcheck/"+name)
	}
	list, err := exec.CommandContext(t.Context(), "go", args...).Output()
	expect.Error(t, "go list", err, nil)
	for name := range strings.FieldsSeq(string(list)) {
		if strings.Contains(name, "miniredis") || strings.Contains(name, "gopher-lua") || strings.HasSuffix(name, "coatcheck/embedded") {
			t.Errorf("a service links %s, want that it does not", name)
		}
	}
}
