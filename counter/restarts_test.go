package counter_test

import (
	"testing"

	"github.com/coatcheck/coatcheck/counter"
	"github.com/coatcheck/coatcheck/internal/redistest"
	"github.com/coatcheck/coatcheck/redisstore"
)

func trusting(c *redisstore.Config, _ *counter.Config) { c.Restarts = redisstore.TrustRestarts }

// An attempt that is not answered may take a value, and nothing else is left out.
func wantSoonAfter(t *testing.T, what string, got, last int64) {
	t.Helper()
	if got <= last || got >= last+margin {
		t.Errorf("%s: got %d, want one soon after %d", what, got, last)
	}
}

func TestTrustedRestartMovesNoCounter(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	before := process(t, server.URL(), trusting)
	before.countTo(t, "k", 50)
	server.Kill()
	server.Restart()
	last := before.next(t, "k")
	wantSoonAfter(t, "the next value of the process that goes on", last, 50)
	process(t, server.URL(), trusting).gets(t, "k", last+1)
	process(t, server.URL()).gets(t, "k", last+1+margin+1) // it trusts no restart
}

func TestTrustedFailoverMovesNoCounter(t *testing.T) {
	t.Parallel()
	set := redistest.StartSentinel(t, 1)
	before := process(t, set.URL(), trusting, acknowledged(1))
	before.countTo(t, "k", 50)
	old := set.Master()
	old.Kill()
	set.WaitForMaster(old)
	old.Restart() // as a replica, to confirm
	wantSoonAfter(t, "the next value after a failover", process(t, set.URL(), trusting, acknowledged(1)).next(t, "k"), 50)
}
