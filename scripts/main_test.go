package scripts_test

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"

	"go.uber.org/goleak"
)

// TestMain runs the package's tests and then asks two things of the run as a whole: no goroutine is
// left, and every reply that a script's header lists was produced on a redis-server and on the
// embedded store, but for those in unseen. The second is asked of a full run only.
func TestMain(m *testing.M) {
	flag.Parse()
	code := m.Run()
	stores.run.end()
	if code == 0 {
		code = verdict()
	}
	os.Exit(code)
}

func verdict() int {
	if err := goleak.Find(); err != nil {
		fmt.Fprintln(os.Stderr, "left behind:", err)
		return 1
	}
	for _, name := range []string{"test.run", "test.skip", "test.list", "test.bench", "test.fuzz"} {
		if set := flag.Lookup(name); set != nil && set.Value.String() != "" {
			return 0
		}
	}
	missing := seen.missing()
	for _, line := range missing {
		fmt.Fprintln(os.Stderr, line)
	}
	return min(1, len(missing))
}

// unseen are outcomes that no test can see on a kind of store, and why.
var unseen = map[string]string{
	"embedded incarnation none":      "the embedded store has an incarnation, always",
	"embedded incarnation continued": "the embedded store shows no run of a server",
}

// seen notes every outcome that a script answered in any test.
var seen outcomes

type outcomes struct {
	mu    sync.Mutex
	words map[string]bool // "kind script word"
}

func (o *outcomes) note(kind, script, word string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.words == nil {
		o.words = map[string]bool{}
	}
	o.words[kind+" "+script+" "+word] = true
}

func (o *outcomes) missing() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	var missing []string
	for _, script := range all {
		for _, word := range listed(script) {
			for _, kind := range kinds {
				answer := kind + " " + script.Name + " " + word
				switch seen, reason := o.words[answer], unseen[answer]; {
				case seen && reason != "":
					missing = append(missing, fmt.Sprintf("%s answers {'%s'} on %s, though %s", script.Name, word, kind, reason))
				case !seen && reason == "":
					missing = append(missing, fmt.Sprintf("no test has seen %s answer {'%s'} on %s", script.Name, word, kind))
				}
			}
		}
	}
	slices.Sort(missing)
	return missing
}
