package scripts_test

import (
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
)

// servers makes a master with a replica that is in sync.
func servers(t *testing.T) (master, replica *box) {
	t.Helper()
	first, second := redistest.Start(t), redistest.Start(t)
	master, replica = serve(t, first), serve(t, second)
	host, port, _ := strings.Cut(first.Addr(), ":")
	replica.follow(host, port)
	return master, replica
}

// follow makes the server a replica, and waits until it is in sync.
func (b *box) follow(host, port string) {
	b.Helper()
	b.do("REPLICAOF", host, port)
	expect.Eventually(b, "the replica is in sync with "+host+":"+port, func() bool {
		return strings.Contains(b.do("INFO", "replication").(string), "master_link_status:up")
	})
}

// acknowledged waits until the replica has all that was written.
func (b *box) acknowledged() {
	b.Helper()
	expect.MustEqual(b, "WAIT for one replica", b.do("WAIT", 1, patience.Milliseconds()), any(int64(1)))
}

func TestPromotedReplicaGrantsNothingUntilTheWindowsOfTheOldMasterHaveEnded(t *testing.T) {
	t.Parallel()
	master, replica := servers(t)
	ask := lease{skew: minute, newPools: "wait", bits: 1}
	master.create(ask)
	ask.nonce = "n0"
	g := master.lease(ask)
	master.acknowledged()
	before := replica.head()["incarnation"]
	replica.do("REPLICAOF", "NO", "ONE")
	// The old master was not told, and goes on.
	ask.nonce = "n1"
	unseen := master.lease(ask)

	end := replica.quarantined(ask, g.till+minute)
	if replica.replid() == before {
		t.Error("the promoted replica calls itself as its master did")
	}
	p := g.proof()
	p.bits, p.skew = 1, minute
	word(t, replica.prove(p), "ok", 3) // the holder that is known there stays
	// The one that is not known proves its grant. Had it not, no client would have got its id
	// before the window's end.
	p = unseen.proof()
	p.bits, p.skew = 1, minute
	word(t, replica.prove(p), "ok", 3)
	replica.quarantined(ask, end)
	replica.pass(end - replica.now() - minute)
	replica.quarantined(ask, 0)
	// the windows that were renewed in the quarantine end a little after it
	const after = 2 * minute
	replica.pass(after)
	ask.nonce = "n2"
	if next := replica.lease(ask); next.from < replica.now()-hour {
		t.Errorf("%+v is granted before the quarantine's end", next)
	}
	replica.sound()
}

func TestMasterThatCameBackIsAnotherIncarnation(t *testing.T) {
	t.Parallel()
	a, b := servers(t)
	ask := lease{nonce: "n0"}
	a.lease(ask)
	a.acknowledged()
	seen := map[string]bool{a.replid(): true}
	b.do("REPLICAOF", "NO", "ONE")
	b.quarantined(lease{}, 0)
	seen[b.replid()] = true
	host, port, _ := strings.Cut(b.client.Options().Addr, ":")
	a.follow(host, port)
	a.do("REPLICAOF", "NO", "ONE")
	a.pass(9 * hour) // so that only a loss noticed now can make a process wait
	a.quarantined(lease{}, a.now())
	if seen[a.replid()] {
		t.Error("the first master is the same again")
	}
}

func TestServerThatStartedEmptyGrantsNothing(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := serve(t, server)
	ask := lease{nonce: "n0", newPools: "wait", skew: minute}
	b.create(ask)
	g := b.lease(ask)
	server.RestartEmpty()
	b.quarantined(ask, g.till+minute)
	p := g.proof()
	word(t, b.prove(p), "ok", 3)
	b.sound()
}

func TestServerThatStartedWithAnOlderSnapshotGrantsNothing(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := serve(t, server)
	known := b.lease(lease{nonce: "n0", identity: "ann"})
	b.do("SAVE")
	forgotten := b.lease(lease{nonce: "n1", identity: "bob"})
	server.Kill()
	server.Restart()
	expect.MustEqual(t, "records in the snapshot", b.head()["records"], "1")
	b.quarantined(lease{}, forgotten.till)
	word(t, b.prove(forgotten.proof()), "ok", 3)
	word(t, b.renew(known, ""), "ok", 3)
	b.sound()
	b.pass(2 * hour)
	if g := b.lease(lease{nonce: "n2", identity: "bob"}); g.id != forgotten.id || g.fence <= forgotten.fence {
		t.Errorf("leased after the quarantine: got %+v, want the id of %+v and a larger fence", g, forgotten)
	}
}

func TestServerThatRenamesItsHistoryCostsNoQuarantine(t *testing.T) {
	t.Parallel()
	b := open(t, "redis")
	g := b.lease(lease{nonce: "n0"})
	b.do("DEBUG", "CHANGE-REPL-ID")
	word(t, b.renew(g, ""), "ok", 3)
	b.lease(lease{nonce: "n1"})
	if head := b.head(); !strings.HasPrefix(head["incarnation"], b.word()) {
		t.Errorf("the pool notes %q, want %q", head["incarnation"], b.word())
	}
}
