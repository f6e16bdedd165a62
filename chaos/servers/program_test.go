//go:build check && linux

package servers

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// Redis ends, and Valkey goes on in its place, on its port and with its files, as an upgrade does.
func TestValkeyTakesOverFromRedis(t *testing.T) {
	choice := filepath.Join(t.TempDir(), "choice")
	choose := func(program string) {
		t.Helper()
		expect.NoError(t, "os.WriteFile", os.WriteFile(choice, []byte(program), 0o600))
	}
	choose("redis-server")
	server := startWith(t, "PROGRAM=$(cat "+choice+")", "--appendonly", "yes")
	one, other := startService(t, server.URL()), startService(t, server.URL())
	l := startLoad(t, one, other)
	choose("valkey-server")
	server.Restart()
	if info := server.Client().Info(t.Context(), "server").Val(); !strings.Contains(info, "valkey") {
		t.Fatalf("it is no Valkey:\n%s", info)
	}
	l.goesOn()
	l.check(exceptions{lossy: true}, one)
}
