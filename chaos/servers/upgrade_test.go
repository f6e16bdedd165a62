//go:build check && linux

package servers

import (
	"context"
	"fmt"
	"os/exec"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/chaos/evidence"
	"github.com/coatcheck/coatcheck/chaos/internal/chaostest"
	"github.com/coatcheck/coatcheck/client"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
)

// release is the commit of the program from which upgrades begin: the first with the formats of
// 1.0.0-rc.2.
const release = "80499b1c"

// releaseProgram builds the program of the last release from the history of this repository, in a
// folder that stays, so that only the first build compiles it.
func releaseProgram(t *testing.T) string {
	t.Helper()
	folder, err := exec.CommandContext(t.Context(), "../../tools/unpack", release).Output()
	if err != nil {
		t.Fatalf("tools/unpack %s: %v\nThe release is built from the history of this repository, so all of it is needed: git fetch --unshallow", release, err)
	}
	return chaostest.BuildIn(t, strings.TrimSpace(string(folder)), "-buildvcs=false", "./cmd/coatcheck")
}

// An upgrade, rolling, and its roll-back, while clients use whatever serves: the last release
// alone, both, this one alone, both, the last release alone. Nothing comes twice, also while both
// serve; what they refuse to do side by side, one alone does.
func TestUpgradeAndRollBackUnderLoad(t *testing.T) {
	t.Parallel()
	before := releaseProgram(t)
	for name, start := range map[string]func(t *testing.T) (url string){
		"one server": func(t *testing.T) string { return redistest.Start(t, "--appendonly", "yes").URL() },
		"sentinel":   func(t *testing.T) string { return redistest.StartSentinel(t, 1).URL() },
		"cluster":    func(t *testing.T) string { return redistest.StartCluster(t, 3, 0).URL() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := start(t)
			run := func(program string) (*client.Client, *chaostest.Process) {
				return serveProcess(t, exec.CommandContext(context.Background(), program, arguments(url)...))
			}
			serving, process := run(before)
			changes := 0
			l := startLoad(t, serving)
			n := &numbers{load: l, seen: map[int64]bool{}}
			n.ask(serving, serving)
			for _, program := range slices.Repeat([]string{chaostest.Coatcheck(t), before}, *chaostest.Rounds) {
				next, nextProcess := run(program)
				changes += 2
				l.join(next)
				l.goesOn("count", "pay")
				n.ask(serving, next)
				l.leave(serving)
				process.Finish()
				l.goesOn()
				n.ask(next, next)
				serving, process = next, nextProcess
			}
			twice := l.check(exceptions{lossy: true}, serving) + n.twice
			chaostest.ProveCase(t, evidence.Upgrades, name, strconv.Itoa(changes), strconv.Itoa(len(l.values)), strconv.Itoa(len(l.held)),
				strconv.Itoa(len(l.ids)), strconv.Itoa(n.ids), strconv.Itoa(n.asked), strconv.Itoa(len(l.tokens)), strconv.Itoa(twice))
		})
	}
}

// numbers are those of segments and of requests with a key, which a test asks for by itself.
type numbers struct {
	*load
	asked, ids, twice int
	seen              map[int64]bool
}

// ask asks both services for ids of a segment, which nobody has got, and for the number of a
// request with a key, which both answer alike, also later.
func (n *numbers) ask(one, other *client.Client) {
	n.t.Helper()
	for range 20 {
		n.asked++
		key := fmt.Sprintf("request-%d", n.asked)
		var first client.CounterRange
		for i, service := range []*client.Client{one, other, one} {
			ids, err := service.SegmentIDs(n.t.Context(), "invoices", 3)
			if err != nil {
				n.t.Errorf("ids of a segment: %v", err)
			}
			n.ids += len(ids)
			for _, id := range ids {
				if n.seen[id] {
					n.twice++
					n.t.Errorf("id %d of a segment came twice", id)
				}
				n.seen[id] = true
			}
			got, err := service.Add(n.t.Context(), "requests", client.CounterRequest{RequestID: key})
			if i == 0 {
				first = got
			}
			if err != nil || !reflect.DeepEqual(got, first) {
				n.twice++
				n.t.Errorf("number of the request %s: got %v and %v, want the answer of the first, %v", key, got, err, first)
			}
		}
	}
	time.Sleep(rest)
}
