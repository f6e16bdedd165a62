//go:build steps

package walk

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	// share is how many rounds one process runs. With the race detector the runtime keeps 80 KB of
	// each synctest bubble in which a timer fired, until the process ends.
	share = 2500
	// garbage is GOGC: a round makes much of it, and what is kept is small.
	garbage = 400
)

// part is a share of the rounds of a seed.
type part struct{ from, rounds int }

func parts(rounds int) []part {
	var all []part
	for from := 0; from < rounds; from += share {
		all = append(all, part{from, min(share, rounds-from)})
	}
	return all
}

// inProcesses runs the rounds of this test in processes of their own, as many at once as there are
// processors: a round has one goroutine go on at a time.
func inProcesses(t *testing.T, seed uint64, rounds int) {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	next := make(chan part)
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for p := range next {
				if !t.Failed() {
					inProcess(t, program, seed, p)
				}
			}
		})
	}
	for _, p := range parts(rounds) {
		next <- p
	}
	close(next)
	workers.Wait()
}

func inProcess(t *testing.T, program string, seed uint64, p part) {
	t.Helper()
	args := []string{
		"-test.run=" + only(t.Name()), "-test.count=1", "-test.v",
		fmt.Sprintf("-walk.seed=%d", seed), fmt.Sprintf("-walk.from=%d", p.from), fmt.Sprintf("-walk.rounds=%d", p.rounds),
	}
	if end, ok := t.Deadline(); ok {
		args = append(args, fmt.Sprintf("-test.timeout=%v", max(time.Until(end), time.Second)))
	}
	out, err := exec.CommandContext(t.Context(), program, args...).CombinedOutput()
	if err != nil {
		t.Errorf("rounds %d to %d: %v\n%s", p.from, p.from+p.rounds-1, err, out)
		return
	}
	if !strings.Contains(string(out), fmt.Sprintf("%d random rounds, seed %d", p.rounds, seed)) {
		t.Errorf("rounds %d to %d were not run:\n%s", p.from, p.from+p.rounds-1, out)
	}
}

// only is the pattern of one test.
func only(name string) string {
	levels := strings.Split(name, "/")
	for i, level := range levels {
		levels[i] = "^" + regexp.QuoteMeta(level) + "$"
	}
	return strings.Join(levels, "/")
}
