package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// withSettings starts the program with settings in its environment, secrets among them.
func withSettings(t *testing.T, server string, args ...string) *running {
	t.Helper()
	with := []string{
		"COATCHECK_SERVER=" + server, "COATCHECK_API_KEY=cck_hunter2", "COATCHECK_REDIS=redis://:hunter2@127.0.0.1:1",
		"COATCHECK_ANSWER_KEYS=" + aKey("a", 1), "COATCHECK_OF_A_LATER_VERSION=hunter2", "APP_KEY=kept", built(t),
	}
	return startCommand(t, exec.Command("env", append(with, args...)...))
}

// A command does not get the API key, the password of Redis and the keys with which coatcheck runs
// it, which it could log or pass on, unless it is to have them.
func TestWrappedCommandsHaveNoSettingsOfOurs(t *testing.T) {
	t.Parallel()
	server := serve(t).banner.URL
	for _, row := range []struct {
		args []string
		has  string // what the command finds of its own
	}{
		{[]string{"once", "nightly"}, "ONCE_KEY=nightly"},
		{[]string{"lock", "run", "deploy"}, "LOCK_NAME=deploy"},
		{[]string{"worker", "run", "orders"}, "WORKER_POOL=orders"},
	} {
		for _, pass := range []bool{false, true} {
			args := slices.Clone(row.args)
			if pass {
				args[len(args)-1] += "-2"
				args = append(args, "--pass-settings")
			}
			ran := withSettings(t, server, append(args, "--", "env")...)
			ran.exits(done)
			what := "environment of the command of " + strings.Join(args, " ")
			expect.Contains(t, what, ran.stdout.String(), row.has, "APP_KEY=kept")
			if pass {
				expect.Contains(t, what, ran.stdout.String(), "COATCHECK_API_KEY=cck_hunter2", "COATCHECK_REDIS=redis://:hunter2@127.0.0.1:1")
				continue
			}
			lacks(t, what, ran.stdout.String(), "COATCHECK_", "hunter2")
		}
	}
}

func TestCommandThatResolvesHasNoSettingsOfOurs(t *testing.T) {
	t.Parallel()
	server := serve(t).banner.URL
	withSettings(t, server, "once", "--lease", "1s", "nightly", "--", "sh", "-c", "kill -9 $$").exits(failed)
	found := filepath.Join(t.TempDir(), "environment")
	var environment []byte
	expect.Eventually(t, "the command of --resolve runs", func() (ran bool) {
		withSettings(t, server, "once", "--resolve", "env >'"+found+"'; exit 10", "nightly", "--", "true").code()
		var err error
		environment, err = os.ReadFile(found)
		return err == nil
	})
	expect.Contains(t, "its environment", string(environment), "ONCE_KEY=nightly", "APP_KEY=kept")
	lacks(t, "its environment", string(environment), "COATCHECK_", "hunter2")
}
