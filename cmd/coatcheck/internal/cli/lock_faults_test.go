package cli

import "testing"

// A lock that was broken is another's at once, so its holder's command has no time left to end by
// itself, however long its grace.
func TestCommandIsKilledWhenItsLockIsBroken(t *testing.T) {
	t.Parallel()
	lockDoors(t, func(t *testing.T, at []string) {
		r := runLocked(t, at, []string{"--ttl", breakable}, `trap 'echo asked to end' TERM; echo ready; while :; do sleep 0.05; done`)
		r.ready()
		execute(t, nil, append([]string{"lock", "break", "deploy", "--yes"}, at...)...).exits(done)
		r.exits(tryLater, "An operator broke it")
		lacks(t, "stdout of the command whose lock was broken", r.stdout.String(), "asked")
	})
}
