//go:build check

package locks

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/coatcheck/coatcheck/chaos/evidence"
	"github.com/coatcheck/coatcheck/chaos/internal/chaostest"
)

// whoTheyAre names the ways to lock, by role.
var whoTheyAre = map[string]string{
	"fenced": evidence.Ours, "waiting": evidence.Ours, "naive": "`SET NX` and a TTL",
	"redislock": "redislock", "redsync": "redsync", "rueidislock": "rueidislock",
}

// sceneOf is the scene of a name, or of what is said about it.
func sceneOf(text string) string {
	name, _, _ := strings.Cut(text, ",")
	_, scene, _ := strings.Cut(name, "-")
	return scene
}

// tenure is a grant and its end. The end's Call is the last moment at which the client was told
// that the lock was his.
type tenure struct{ grant, end porcupine.Operation }

// tenuresOf are those of an exclusive lock by when they began. A client's grants and ends come in
// turn.
func tenuresOf(history []porcupine.Operation) (all []tenure) {
	open := map[int]porcupine.Operation{}
	for _, o := range history {
		if o.Input.(deed).end {
			all = append(all, tenure{open[o.ClientId], o})
		} else {
			open[o.ClientId] = o
		}
	}
	slices.SortFunc(all, func(a, b tenure) int { return cmp.Compare(a.grant.Return, b.grant.Return) })
	return all
}

// overlaps are the grants that came while another client was still told that the lock was his, each
// behind that one's.
func overlaps(history []porcupine.Operation) (found [][2]tenure) {
	believed := func(one tenure) chaostest.Span { return chaostest.Span{From: one.grant.Return, To: one.end.Call} }
	chaostest.Overlaps(tenuresOf(history), believed, func(before, one tenure) { found = append(found, [2]tenure{before, one}) })
	return found
}

// twice counts the grants of all names that came while another client believed.
func (h *histories) twice() (n int) {
	for name, history := range h.of {
		if strings.HasPrefix(name, "exclusive") {
			n += len(overlaps(history))
		}
	}
	return n
}

// timeline is the violation in which two believed for longest, with what happened around it, if
// there is one.
func (f *field) timeline(found *histories) (line evidence.Timeline, is bool) {
	longest := int64(0)
	for name, history := range found.of {
		scene := sceneOf(name)
		struck := f.struck[scene]
		if !strings.HasPrefix(name, "exclusive") || struck[0].IsZero() || !explains(f.kinds[scene]) {
			continue
		}
		for _, two := range overlaps(history) {
			both := min(two[0].end.Call, two[1].end.Call) - two[1].grant.Return
			if both > longest && time.Unix(0, two[1].grant.Return).After(struck[0]) {
				longest, is = both, true
				line = evidence.Timeline{
					Who: whoTheyAre[f.Role], Title: "one lock, and the clients that were told that it is theirs",
					Fault: f.kinds[scene], Struck: struck[0], Mended: struck[1], Spans: spansAround(history, two),
				}
			}
		}
	}
	return line, is
}

// explains reports whether a fault by itself lets two clients be told that they hold: after another
// one the tail of the fault before may be what is seen.
func explains(name string) bool {
	return slices.ContainsFunc(slices.Concat(live, losses), func(kind fault) bool { return kind.Name == name })
}

// spansAround are those of a violation, and what happened around it.
func spansAround(history []porcupine.Operation, two [2]tenure) (spans []evidence.Span) {
	wrong := map[tenure]bool{}
	for _, pair := range overlaps(history) {
		wrong[pair[0]], wrong[pair[1]] = true, true
	}
	from, to := time.Unix(0, two[0].grant.Call).Add(-around), time.Unix(0, max(two[0].end.Call, two[1].end.Call)).Add(around)
	for _, one := range tenuresOf(history) {
		asked, got, last := time.Unix(0, one.grant.Call), time.Unix(0, one.grant.Return), time.Unix(0, one.end.Call)
		if last.Before(from) || got.After(to) || len(spans) > 40 {
			continue
		}
		if asked.Before(from) {
			asked = from
		}
		who := fmt.Sprintf("client %d", one.grant.ClientId+1)
		spans = append(spans,
			evidence.Span{Who: who, What: "asks", From: asked, To: got, Asks: true},
			evidence.Span{Who: who, What: "holds", From: got, To: last, Wrong: wrong[one]})
	}
	return spans
}

// around is how much of what was before and after a violation a timeline has.
const around = 20 * time.Millisecond

// prove writes down what was found of each kind of fault.
func (f *field) prove(found *histories, violations []string) {
	f.T.Helper()
	chaostest.Prove(f.T, f.rows(found, violations)...)
}

// rows are what was found of each kind of fault. Void scenes are left out.
func (f *field) rows(found *histories, violations []string) (all []evidence.Row) {
	rows := map[string]*evidence.Row{}
	of := func(scene, promise string) *evidence.Row {
		if slices.Contains(f.void, scene) || f.kinds[scene] == "" {
			return &evidence.Row{}
		}
		at := promise + f.kinds[scene]
		if rows[at] == nil {
			who := whoTheyAre[f.Role]
			rows[at] = &evidence.Row{Suite: "locks", Promise: promise, Who: who, Peer: who != evidence.Ours, Layer: evidence.Processes, Fault: f.kinds[scene]}
		}
		return rows[at]
	}
	promises := []string{evidence.Locks}
	if whoTheyAre[f.Role] == evidence.Ours {
		promises = append(promises, evidence.Fences) // the others have none
	}
	for _, promise := range promises {
		for scene := range f.kinds {
			of(scene, promise).Faults++
			of(scene, promise).Waited += int64(f.waited[scene])
		}
		for name, history := range found.of {
			of(sceneOf(name), promise).Operations += int64(len(history)) / 2
		}
		if promise == evidence.Locks {
			for name, history := range found.of {
				if strings.HasPrefix(name, "exclusive") {
					of(sceneOf(name), promise).Violations += int64(len(overlaps(history)))
				}
			}
		}
		for _, violation := range violations {
			mutex := strings.Contains(violation, "as mutex:")
			switch {
			case promise == evidence.Fences && !mutex, promise == evidence.Locks && (mutex || !strings.HasPrefix(violation, "exclusive")):
				of(sceneOf(violation), promise).Violations++
			}
		}
	}
	for _, at := range slices.Sorted(maps.Keys(rows)) {
		all = append(all, *rows[at])
	}
	return all
}
