package cli

import (
	"errors"
	"fmt"
	"testing"

	"github.com/coatcheck/coatcheck/internal/expect"
	"github.com/coatcheck/coatcheck/lock"
)

// A lock that was broken is another's at once, so its holder's command has no time left to end by
// itself, however long its grace.
func TestCommandIsKilledWhenItsLockIsBroken(t *testing.T) {
	t.Parallel()
	lockDoors(t, func(t *testing.T, at []string) {
		r := runLocked(t, at, []string{"--ttl", breakable}, `trap 'echo asked to end' TERM; echo ready; while :; do sleep 0.05; done`)
		r.ready()
		execute(t, nil, append([]string{"lock", "break", "deploy", "--yes"}, at...)...).exits(done)
		r.exits(tryLater, "Somebody broke it")
		lacks(t, "stdout of the command whose lock was broken", r.stdout.String(), "asked")
	})
}

// Who kills the command is not always faster than the guard, which sees its child end and may still
// report that. Each row is what the guard reports then.
func TestVerdictOnACommandThatWasKilled(t *testing.T) {
	for _, row := range []struct {
		report report
		killed bool
		code   int
	}{
		{report{Ended: true, Code: 128 + 9}, true, tryLater},
		{report{Ended: true, Code: 128 + 9, Cut: true}, false, tryLater},
		{report{}, true, tryLater},
		{report{Ended: true, Code: 128 + 9}, false, 128 + 9}, // by somebody else
		{report{Ended: true, Code: 3}, true, 3},              // just before
	} {
		s := &supervision{tenure: lostTenure{}, outcome: row.report, killed: row.killed, cause: lock.ErrLost}
		err, code := s.verdict(), 0
		if ended, own := errors.AsType[exitError](err); own {
			code = ended.code
		} else if _, later := errors.AsType[laterError](err); later {
			code = tryLater
		}
		expect.Equal(t, fmt.Sprintf("exit code of the report %+v, killed %v, whose error is %v", row.report, row.killed, err), code, row.code)
	}
}

// lostTenure is a lease that was lost.
type lostTenure struct{ tenure }

func (lostTenure) lost(cause error) error { return cause }
