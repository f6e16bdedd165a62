//go:build check

package locks

import (
	"maps"
	"slices"
	"strings"

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

// prove writes down what was found of each kind of fault. Void scenes are left out.
func (f *field) prove(found *histories, violations []string) {
	rows := map[string]*evidence.Row{}
	of := func(scene, promise string) *evidence.Row {
		if slices.Contains(f.void, scene) || f.kinds[scene] == "" {
			return &evidence.Row{}
		}
		at := promise + f.kinds[scene]
		if rows[at] == nil {
			who := whoTheyAre[f.role]
			rows[at] = &evidence.Row{Suite: "locks", Promise: promise, Who: who, Peer: who != evidence.Ours, Layer: evidence.Processes, Fault: f.kinds[scene]}
		}
		return rows[at]
	}
	promises := []string{evidence.Locks}
	if whoTheyAre[f.role] == evidence.Ours {
		promises = append(promises, evidence.Fences) // the others have none
	}
	for _, promise := range promises {
		for scene := range f.kinds {
			of(scene, promise).Faults++
		}
		for name, history := range found.of {
			of(sceneOf(name), promise).Operations += int64(len(history)) / 2
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
		chaostest.Prove(f.T, *rows[at])
	}
}
