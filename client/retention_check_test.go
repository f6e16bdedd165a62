//go:build check

package client_test

import (
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/client"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
)

const (
	runPython = `import coatcheck, sys
print(coatcheck.run_once(coatcheck.Client(sys.argv[1]), key=sys.argv[2], fingerprint="f", work=lambda _: "paid", lease=1, retention=int(sys.argv[3]))[1])`
	runNode = `const [, home, url, key, retention] = process.argv;
const { Client, runOnce } = await import(home);
console.log((await runOnce(new Client(url), { key, retention: Number(retention) }, 'f', () => 'paid', { lease: 1 })).replayed);`
)

// replayed runs something once under a key, by a client in some language without an API key, and
// reports whether it had run before.
func (s *service) replayed(t *testing.T, language, key string, retention time.Duration) bool {
	t.Helper()
	seconds := strconv.Itoa(int(retention.Seconds()))
	output := ""
	switch language {
	case "python":
		output = ran(t, ".", "env", "PYTHONPATH="+pythonPackage, "python3", "-c", runPython, s.url, key, seconds)
	case "node":
		home, err := filepath.Abs("../clients/node/index.mjs")
		must(t, "finding the package", err)
		output = ran(t, ".", "node", "--input-type=module", "-e", runNode, "file://"+home, s.url, key, seconds)
	default:
		terms := client.ClaimOptions{Fingerprint: "f", Lease: time.Second}
		result, err := s.DoKey(t.Context(), client.OwnKey{Key: key, Retention: retention}, terms, working)
		succeeds(t, "DoKey", err)
		return result.Replayed
	}
	return strings.EqualFold(strings.TrimSpace(output), "true")
}

// The answer under a key of the caller's own stays for the retention that the client was given, and
// no longer, also where no principal is known.
func TestAnswerUnderAnOwnKeyStaysForItsRetention(t *testing.T) {
	s := serve(t, open(t, redistest.Start(t).URL()))
	for _, language := range []string{"go", "python", "node"} {
		t.Run(language, func(t *testing.T) {
			for _, retention := range []time.Duration{5 * time.Minute, 10 * 24 * time.Hour} {
				key, before := language+" for "+retention.String(), time.Now().Add(-time.Second)
				expect.Equal(t, key+": replayed", s.replayed(t, language, key, retention), false)
				after := time.Now().Add(time.Second) // Redis rounds
				outcome, err := s.ClaimKey(t.Context(), client.OwnKey{Key: key}, client.ClaimOptions{Fingerprint: "f"})
				succeeds(t, "ClaimKey", err)
				shown, err := s.Operation(t.Context(), outcome.Operation)
				succeeds(t, "Operation", err)
				if ends := shown.ExpiresAt.Add(-retention); ends.Before(before) || ends.After(after) {
					t.Fatalf("%s, answered between %v and %v, ends %v", key, before, after, shown.ExpiresAt)
				}
			}
			key := language + " for a second"
			expect.Equal(t, "the first run: replayed", s.replayed(t, language, key, time.Second), false)
			expect.Eventually(t, "a run after the second", func() bool { return !s.replayed(t, language, key, time.Second) })
		})
	}
}
