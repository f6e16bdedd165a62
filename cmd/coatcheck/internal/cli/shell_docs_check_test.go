//go:build check

package cli

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
)

// Blocks of shell that show no output end as they should where a service and a Redis are, in the
// order of the rows: a later one of a page may need what an earlier one has made.
func TestShellOfThePagesRuns(t *testing.T) {
	t.Setenv("COATCHECK_STORE_TIMEOUT", "30s") // on a busy machine
	store := redistest.Start(t).URL()
	folder, commands := t.TempDir(), programs(t)
	// none of its ids is in use: no wait
	made, err := exec.CommandContext(t.Context(), commands+"/coatcheck", "worker", "create", "default", "--redis", store).CombinedOutput()
	expect.MustEqual(t, "error of making the service's own pool: "+string(made), err, nil)
	server := serve(t, "--redis", store).banner.URL
	for name, text := range map[string]string{
		"orders-service": "#!/bin/sh\ntest \"$WORKER_POOL\" = orders && echo worker $WORKER_ID\n",
		"old/report":     "",
	} {
		expect.MustEqual(t, "error of the folder of "+name, os.MkdirAll(filepath.Dir(filepath.Join(folder, name)), 0o700), nil)
		expect.MustEqual(t, "error of writing "+name, os.WriteFile(filepath.Join(folder, name), []byte(text), 0o700), nil)
	}
	here := strings.NewReplacer("redis://localhost:6379", store, "redis://127.0.0.1:6379", store, "http://127.0.0.1:8080", server, "/srv/tmp", folder+"/old",
		"--duration 30s", "--duration 300ms", "--rate 2000 --json", "--rate 100 --duration 300ms --json",
		"coatcheck gateway --upstream", "until_it_listens gateway --listen 127.0.0.1:0 --admin-listen 127.0.0.1:0 --upstream")
	for _, row := range []struct {
		page   string
		begins string // of the block
		want   []string
	}{
		{"docs/workers.md", "coatcheck worker create", []string{"orders  41/5/5/12  2020-01-01T00:00:00Z  2089-09-06  3           30s  32"}},
		{"docs/workers.md", "coatcheck worker run", []string{"worker "}},
		{"docs/workers.md", "ID=$(coatcheck id)", []string{"\n"}},
		{"docs/locks.md", "coatcheck lock run --at-least", nil},
		{"docs/gateway.md", "cat > routes.yaml", []string{"listening"}},
	} {
		block := blockOf(t, row.page, row.begins)
		script := "set -e\nexport COATCHECK_SERVER=" + server + "\n" + `
until_it_listens() {
	coatcheck "$@" > banner.txt & local process=$!
	until grep listening banner.txt; do kill -0 $process; sleep 0.05; done
	kill $process; wait $process
}
` + here.Replace(block)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute) // each takes a second
		bash := exec.CommandContext(ctx, "bash", "-c", script)
		bash.Dir, bash.Env, bash.WaitDelay = folder, append(os.Environ(), "PATH="+commands+":"+os.Getenv("PATH")), 5*time.Second
		out, err := bash.CombinedOutput()
		cancel()
		expect.Equal(t, "error of the block of "+row.page+"\n"+block+string(out), err, nil)
		expect.Contains(t, "what the block of "+row.page+" prints", string(out), row.want...)
	}
}

// blockOf is the block of shell on a page that begins so.
func blockOf(t *testing.T, page, begins string) string {
	t.Helper()
	for _, block := range shellBlock.FindAllStringSubmatch(readRoot(t, page), -1) {
		if strings.HasPrefix(block[1], begins) {
			return block[1]
		}
	}
	t.Fatalf("%s has no block that begins with %q", page, begins)
	return ""
}
