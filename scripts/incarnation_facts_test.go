package scripts_test

import (
	"cmp"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/coatcheck/coatcheck/internal/testing/engines"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/scripts"
)

// histories are the servers of a row: a master, on which state was noted, and others.
type histories struct {
	*testing.T

	master *redistest.Server
	m      *box // of the master
}

// more starts a server that has nothing to do with the others yet.
func (h *histories) more(args ...string) (*redistest.Server, *box) {
	h.Helper()
	server := redistest.Start(h, args...)
	return server, serve(h, server)
}

// replica starts a replica of a server, and waits until it is in sync.
func (h *histories) replica(of *redistest.Server) *box {
	h.Helper()
	_, b := h.more()
	b.followOf(of)
	return b
}

// unconfirmed has state noted while a replica is attached that does not have to confirm, and has
// gone then. It returns the id of the server that is noted.
func (h *histories) unconfirmed(facts string) (id string) {
	h.Helper()
	server, r := h.more()
	r.followOf(h.master)
	h.m.note(facts)
	id = h.m.replid()
	server.Kill()
	h.m.attached(0)
	return id
}

func (b *box) followOf(server *redistest.Server) {
	b.Helper()
	host, port, _ := net.SplitHostPort(server.Addr())
	b.follow(host, port)
}

func (b *box) promote() {
	b.Helper()
	b.do("REPLICAOF", "NO", "ONE")
}

// info is a field of INFO replication.
func (b *box) info(name string) string {
	b.Helper()
	return b.field("replication", name)
}

func (b *box) field(section, name string) string {
	b.Helper()
	_, rest, _ := strings.Cut(b.do("INFO", section).(string), "\n"+name+":")
	value, _, _ := strings.Cut(rest, "\r")
	return value
}

// The facts of callers. ID stands for the server's incarnation.
const (
	some    = "auto 0 some alone ID -"    // no replica is waited for
	onDisk  = "auto 1 some alone ID -"    // and the server confirms only what is on disk
	ofSome  = "auto 0 some sentinel ID -" // in a Sentinel set
	inSlots = "auto 0 some cluster ID -"
)

// place is a server as a word names it. Without a run that is not known.
func (b *box) place(named bool) string {
	b.Helper()
	run := ""
	if named {
		run = b.field("server", "run_id")[:16]
	}
	return run + "@" + b.client.Options().Addr
}

// ofAll are the facts of a caller in a Sentinel set that waits for all of these servers.
func (b *box) ofAll(others ...*box) string {
	b.Helper()
	places := []string{b.place(true)}
	for _, one := range others {
		places = append(places, one.place(true))
	}
	return "auto 0 all sentinel ID " + strings.Join(places, ",")
}

// note has a caller with these facts note the incarnation, and use a counter up to 5.
func (b *box) note(facts string) {
	b.Helper()
	b.facts = facts
	b.run(scripts.Incarnation, markerKey)
	b.opens(opening{})
	b.do("INCRBY", openKeys[0], 5)
}

// cover is the cover that is noted.
func (b *box) cover() string {
	b.Helper()
	covers := map[string]bool{}
	for _, key := range []string{markerKey[0], openKeys[2]} {
		word, _, _ := strings.Cut(b.do("GET", key).(string), " ")
		covers[strings.Split(word, ":")[4]] = true
	}
	if len(covers) != 1 {
		b.Fatalf("the markers have different covers: %v", covers)
	}
	for cover := range covers {
		return cover
	}
	return ""
}

// judge fails the test unless a caller with these facts finds that the state continues, or does
// not.
func (b *box) judge(facts string, want string) {
	b.Helper()
	b.facts = facts
	if got := b.run(scripts.Incarnation, markerKey); got[0] != want || got[1] != b.replid() {
		b.Errorf("with the facts %q: got %v, want %s %s\nINFO: %s", facts, got, want, b.replid(), b.do("INFO", "replication"))
	}
	got := b.opens(opening{})
	if moved := want == "changed"; got.moved != moved || !moved && got.value != "5" {
		b.Errorf("the counter with the facts %q: got %+v, want moved %v", facts, got, moved)
	}
	if got := b.run(scripts.Incarnation, markerKey); got[0] != "same" {
		b.Errorf("asked again with the facts %q: got %v, want same", facts, got)
	}
}

// attach makes a connection that is fed like a replica, but has no port, as redis-cli --rdb does.
func (h *histories) attach(server *redistest.Server) net.Conn {
	h.Helper()
	conn, err := net.Dial("tcp", server.Addr())
	if err == nil {
		h.Cleanup(func() { _ = conn.Close() })
		_, err = conn.Write([]byte("PSYNC ? -1\r\n"))
	}
	expect.NoError(h, "attaching for a copy", err)
	return conn
}

func (b *box) attached(replicas int) {
	b.Helper()
	expect.Eventually(b, fmt.Sprintf("%d replicas are attached", replicas), func() bool {
		return b.info("connected_slaves") == fmt.Sprint(replicas) &&
			strings.Count(b.do("INFO", "replication").(string), "state=online") == replicas
	})
}

// renamed waits until the server has another id.
func (b *box) renamed(before string) {
	b.Helper()
	expect.Eventually(b, "the server calls its history otherwise than "+before, func() bool { return b.replid() != before })
}

// What real servers show after what really happens to them, and what is concluded from it.
var realHistories = []struct {
	name    string
	args    []string // of the master
	noted   string   // the facts of the caller before; "" = what happens notes it
	happens func(h *histories) (now *box, facts string)
	want    string
	cover   string // that is noted then; "" = any
}{
	{name: "the promotion of a replica that the word names", happens: func(h *histories) (*box, string) {
		r := h.replica(h.master)
		h.m.note(h.m.ofAll(r))
		h.m.acknowledged()
		r.promote()
		return r, r.ofAll(h.m)
	}, want: "continued", cover: "20"},
	{name: "the same, and its statistics were reset", happens: func(h *histories) (*box, string) {
		r := h.replica(h.master)
		h.m.note(h.m.ofAll(r))
		h.m.acknowledged()
		r.do("CONFIG", "RESETSTAT")
		r.promote()
		return r, r.ofAll(h.m)
	}, want: "continued", cover: "20"},
	{name: "the same, and nobody names its run", happens: func(h *histories) (*box, string) {
		r := h.replica(h.master)
		h.m.note("auto 0 all sentinel ID " + h.m.place(true) + "," + r.place(false))
		h.m.acknowledged()
		r.promote()
		return r, r.ofAll(h.m)
	}, want: "changed", cover: "20"},
	{name: "a promotion, confirmed by a number", happens: func(h *histories) (*box, string) {
		r := h.replica(h.master)
		h.m.note(ofSome)
		h.m.acknowledged()
		r.promote()
		return r, r.ofAll(h.m)
	}, want: "changed"},
	{name: "a promotion, confirmed by all after a number", happens: func(h *histories) (*box, string) {
		r := h.replica(h.master)
		h.m.note(ofSome)
		h.m.judge(h.m.ofAll(r), "same")
		h.m.acknowledged()
		r.promote()
		return r, r.ofAll(h.m)
	}, want: "continued", cover: "20"},
	{name: "two promotions", happens: func(h *histories) (*box, string) { return promotions(h, false) }, want: "changed"},
	{name: "two promotions, and a call between", happens: func(h *histories) (*box, string) { return promotions(h, true) },
		want: "continued", cover: "20"},
	{name: "a master that starts from an RDB file names the id in it as the one before", happens: func(h *histories) (*box, string) {
		r := h.replica(h.master)
		h.m.note(h.m.ofAll(r))
		before := h.m.replid()
		h.m.saves()
		h.m.do("INCRBY", openKeys[0], 100) // is lost
		h.m.acknowledged()
		h.master.Kill()
		h.master.Restart()
		expect.MustEqual(h, "master_replid2 after a start from an RDB file", h.m.info("master_replid2"), before)
		return h.m, h.m.ofAll(r)
	}, want: "changed"},
	{name: "a replica that starts from an RDB file and is promoted without its master", happens: func(h *histories) (*box, string) {
		host, port, _ := net.SplitHostPort(h.master.Addr())
		server, r := h.more("--replicaof", host+" "+port)
		expect.Eventually(h, "the replica is in sync", func() bool { return r.info("master_link_status") == "up" })
		h.m.note(h.m.ofAll(r))
		h.m.acknowledged()
		before, former := h.m.replid(), h.m.place(true)
		r.do("SAVE")
		h.m.do("INCRBY", openKeys[0], 100) // is lost
		h.m.acknowledged()
		h.master.Kill()
		server.Kill()
		server.Restart()
		r.promote()
		expect.MustEqual(h, "master_replid2 of a replica that has started from an RDB file and is promoted", r.info("master_replid2"), before)
		return r, r.ofAll() + "," + former
	}, want: "changed"},
	{name: "a replica that starts from an RDB file and is promoted in the middle of its synchronisation", happens: cutShort, want: "changed"},
	{name: "a copy is made of a server without a backlog", noted: some, happens: func(h *histories) (*box, string) {
		before := h.m.replid()
		h.attach(h.master)
		h.m.renamed(before)
		return h.m, some
	}, want: "continued", cover: "10"},
	{name: "and its backlog is freed", noted: some, happens: func(h *histories) (*box, string) {
		h.m.do("CONFIG", "SET", "repl-backlog-ttl", 1)
		before := h.m.replid()
		conn := h.attach(h.master)
		h.m.renamed(before)
		h.m.judge(some, "continued")
		before = h.m.replid()
		_ = conn.Close()
		h.m.renamed(before)
		return h.m, some
	}, want: "continued", cover: "10"},
	{name: "the first replica attaches", noted: some, happens: func(h *histories) (*box, string) {
		before := h.m.replid()
		h.replica(h.master)
		h.m.renamed(before)
		h.m.attached(1)
		return h.m, some
	}, want: "continued", cover: "00"},
	{name: "the first replica attaches, and has to confirm", happens: func(h *histories) (*box, string) {
		h.m.note(h.m.ofAll())
		r := h.replica(h.master)
		h.m.attached(1)
		return h.m, h.m.ofAll(r)
	}, want: "continued", cover: "20"},
	{name: "a replica has gone that did not confirm", happens: func(h *histories) (*box, string) {
		h.unconfirmed(some)
		return h.m, some
	}, want: "same", cover: "00"},
	{name: "told to follow a server that is not there, and master again", noted: some, happens: func(h *histories) (*box, string) {
		h.m.aside(nobodyListens(h))
		return h.m, some
	}, want: "changed"},
	{name: "the same, in a Sentinel set whose places confirm", happens: func(h *histories) (*box, string) {
		r := h.replica(h.master)
		h.m.note(h.m.ofAll(r))
		h.m.aside(nobodyListens(h))
		expect.Eventually(h, "the replica follows again", func() bool { return r.info("master_link_status") == "up" })
		return h.m, h.m.ofAll(r)
	}, want: "continued", cover: "20"},
	{name: "a master that followed another for no byte, and loses its backlog", happens: func(h *histories) (*box, string) {
		h.m.do("CONFIG", "SET", "repl-backlog-ttl", 1)
		h.m.renamed(h.unconfirmed(some))
		return h.m, some
	}, want: "changed"},
	{name: "a failover by hand that is called off", happens: func(h *histories) (*box, string) {
		server, r := h.more()
		r.followOf(h.master)
		h.m.note(h.m.ofAll(r))
		h.m.acknowledged()
		server.Pause()
		h.m.do("SET", "more", "than it has")
		h.m.do("FAILOVER", "TIMEOUT", 1, "TO", "127.0.0.1", portOf(server), "FORCE")
		expect.Eventually(h, "the server is to follow its replica", func() bool {
			return h.m.info("master_failover_state") == "failover-in-progress"
		})
		h.m.do("FAILOVER", "ABORT")
		server.Resume()
		return h.m, h.m.ofAll(r)
	}, want: "continued", cover: "20"},
	{name: "told to follow an empty server, for a moment", noted: some, happens: func(h *histories) (*box, string) {
		other, _ := h.more()
		kept := map[string]any{}
		for _, key := range []string{markerKey[0], openKeys[0], openKeys[2]} {
			kept[key] = h.m.do("DUMP", key)
		}
		h.m.followOf(other)
		h.m.promote()
		for key, dump := range kept {
			h.m.do("RESTORE", key, 0, dump)
		}
		return h.m, some
	}, want: "changed"},
	{name: "stopped in order, on disk", args: durable, noted: onDisk, happens: stopped, want: "continued", cover: "11"},
	{name: "killed, on disk", args: durable, noted: onDisk, happens: killed, want: "continued", cover: "11"},
	{name: "killed, on disk, and no restart is believed", args: durable, noted: onDisk, happens: func(h *histories) (*box, string) {
		b, _ := killed(h)
		return b, strings.Replace(onDisk, "auto", "wait", 1)
	}, want: "changed"},
	{name: "killed, not on disk now", args: durable, noted: onDisk, happens: func(h *histories) (*box, string) {
		b, _ := killed(h)
		return b, some
	}, want: "changed"},
	{name: "killed, was not on disk", args: durable, noted: some, happens: killed, want: "changed", cover: "11"},
	{name: "killed, on disk since a call", args: durable, noted: some, happens: func(h *histories) (*box, string) {
		h.m.judge(onDisk, "same")
		return killed(h)
	}, want: "continued", cover: "11"},
	{name: "killed, on disk, with a replica that did not confirm", args: durable, happens: func(h *histories) (*box, string) {
		h.unconfirmed(onDisk)
		return killed(h)
	}, want: "changed"},
	{name: "killed, on disk, and a replica has attached since", args: durable, noted: onDisk, happens: func(h *histories) (*box, string) {
		killed(h)
		h.replica(h.master)
		h.m.attached(1)
		return h.m, onDisk
	}, want: "changed"},
	{name: "killed, written every second", args: []string{"--appendonly", "yes", "--appendfsync", "everysec"}, noted: some,
		happens: func(h *histories) (*box, string) {
			b, _ := killed(h)
			return b, some
		}, want: "changed"},
}

var durable = []string{"--appendonly", "yes", "--appendfsync", "always"}

func stopped(h *histories) (*box, string) {
	h.master.Stop()
	h.master.Restart()
	return h.m, onDisk
}

// killed is called where all that was noted is to be found again: a write to the file may be put
// off where it is not synchronised each time.
func killed(h *histories) (*box, string) {
	expect.Eventually(h, "the append-only file has all", func() bool {
		buffered := h.m.field("persistence", "aof_buffer_length")
		return buffered == "0" || buffered == "" // there is no such file
	})
	h.master.Kill()
	h.master.Restart()
	return h.m, onDisk
}

// aside has a master follow a port at which no server is, until it knows, and makes it master
// again.
func (b *box) aside(port string) {
	b.Helper()
	before := b.replid()
	b.do("REPLICAOF", "127.0.0.1", port)
	expect.Eventually(b, "the server knows that it cannot follow", func() bool {
		down := b.info("master_link_down_since_seconds")
		return b.info("role") == "slave" && down != "" && b.info("master_sync_in_progress") == "0"
	})
	b.promote()
	expect.MustEqual(b, "master_replid2 of a master that was to follow another", b.info("master_replid2"), before)
}

func nobodyListens(h *histories) string {
	h.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	expect.NoError(h, "net.Listen", err)
	defer listener.Close()
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	return port
}

func portOf(server *redistest.Server) string {
	_, port, _ := net.SplitHostPort(server.Addr())
	return port
}

// promotions promotes a replica, and then one of that, and returns the last.
func promotions(h *histories, between bool) (*box, string) {
	server, first := h.more()
	first.followOf(h.master)
	second := h.replica(server)
	h.m.note(h.m.ofAll(first, second))
	expect.Eventually(h, "the second replica has what was noted", func() bool { return second.do("GET", openKeys[0]) == "5" })
	first.promote()
	if between {
		first.judge(first.ofAll(h.m, second), "continued")
	}
	expect.Eventually(h, "the second replica follows the first as a master", func() bool {
		return second.replid() == first.replid() && second.info("master_link_status") == "up"
	})
	first.do("SET", "x", "x")
	first.acknowledged()
	second.promote()
	return second, second.ofAll(h.m, first)
}

// cutShort promotes a replica that has started from an RDB file, and has read a part of what its
// master sends it since.
func cutShort(h *histories) (*box, string) {
	host, port, _ := net.SplitHostPort(h.master.Addr())
	server, r := h.more("--replicaof", host+" "+port)
	expect.Eventually(h, "the replica is in sync", func() bool { return r.info("master_link_status") == "up" })
	h.m.note(h.m.ofAll(r))
	h.m.acknowledged()
	before, former := h.m.replid(), h.m.place(true)
	r.do("SAVE")
	h.m.do("INCRBY", openKeys[0], 100) // is lost
	h.m.do("DEBUG", "POPULATE", 100_000, "populated", 200)
	h.m.acknowledged()
	server.Kill()
	h.m.do("CONFIG", "SET", "repl-backlog-size", "16kb", "repl-diskless-sync", "yes", "repl-diskless-sync-delay", 0, "rdb-key-save-delay", 200)
	for range 10 {
		h.m.do("SET", "more", strings.Repeat("than the backlog holds", 1000))
	}
	server.Restart()
	expect.Eventually(h, "the replica reads what its master has", func() bool {
		read, _ := strconv.Atoi(r.info("master_sync_read_bytes"))
		return read > 0
	})
	h.master.Kill()
	r.promote()
	expect.MustEqual(h, "master_replid2 of a replica that is promoted in the middle of its synchronisation", r.info("master_replid2"), before)
	return r, r.ofAll() + "," + former
}

func TestWhatContinuesOnRealServers(t *testing.T) {
	t.Parallel()
	for _, row := range realHistories {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			h := &histories{T: t, master: redistest.Start(t, row.args...)}
			h.m = serve(t, h.master)
			if row.noted != "" {
				h.m.note(row.noted)
			}
			now, facts := row.happens(h)
			now.judge(facts, row.want)
			if row.cover != "" {
				expect.Equal(t, "the cover that is noted", now.cover(), row.cover)
			}
		})
	}
}

// In a cluster the id and the epoch have to be the noted ones. A slot takes its state along to
// another master, and back.
func TestStateInAClusterContinuesInOneEpochOfOneRun(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3, 0)
	key := []string{"{x}"}
	from := serve(t, cluster.MasterOf(key[0]))
	from.facts = inSlots
	word(t, from.run(scripts.Incarnation, key), "new", 2)
	word(t, from.run(scripts.Incarnation, key), "same", 2)
	id := from.replid()
	for _, want := range []string{"changed", "changed"} { // there, and back
		m := cluster.StartMove(key[0])
		m.Rest(0)
		m.Finish()
		b := serve(t, m.To)
		b.facts = inSlots
		word(t, b.run(scripts.Incarnation, key), want, 2)
		word(t, b.run(scripts.Incarnation, key), "same", 2)
	}
	expect.Equal(t, "the id of the master to which it came back", from.replid(), id)
	from.setField(key[0], 3, "999999")
	word(t, from.run(scripts.Incarnation, key), "changed", 2)
}

// setField changes a field of a word that is noted.
func (b *box) setField(key string, n int, value string) {
	b.Helper()
	word, rest, _ := strings.Cut(b.do("GET", key).(string), " ")
	fields := strings.Split(word, ":")
	fields[n] = value
	b.do("SET", key, strings.Join(fields, ":")+" "+rest)
}

// A word has the places of all callers and of all replicas that were attached. A caller that does
// not wait for one of them is told, and changes nothing.
func TestPlacesThatConfirmOnlyGrow(t *testing.T) {
	t.Parallel()
	h := &histories{T: t, master: redistest.Start(t)}
	h.m = serve(t, h.master)
	own := h.m.place(true)
	asks := func(places string) []string {
		h.m.facts = "auto 0 all sentinel ID " + own + places
		return h.m.run(scripts.Incarnation, markerKey)
	}
	noted := func() string {
		word, _, _ := strings.Cut(h.m.do("GET", markerKey[0]).(string), " ")
		return strings.SplitN(word, ":", 7)[6]
	}
	listOf := func(places ...string) string {
		slices.SortFunc(places, func(a, b string) int {
			_, first, _ := strings.Cut(a, "@")
			_, second, _ := strings.Cut(b, "@")
			return cmp.Compare(first, second)
		})
		return strings.Join(places, ",")
	}
	word(t, asks(",aa@10.0.0.1:1"), "new", 2)
	expect.Equal(t, "the places that are noted", noted(), listOf(own, "aa@10.0.0.1:1"))
	want(t, asks(",bb@10.0.0.2:1"), "places", "aa@10.0.0.1:1")
	before := h.m.look(markerKey...)
	for _, h.m.facts = range []string{some, ofSome} {
		want(t, h.m.run(scripts.Incarnation, markerKey), "all")
	}
	h.m.same(before)
	word(t, asks(",@10.0.0.1:1,bb@10.0.0.2:1"), "same", 2)
	expect.Equal(t, "the places with one more", noted(), listOf(own, "aa@10.0.0.1:1", "bb@10.0.0.2:1"))
	word(t, asks(",cc@10.0.0.1:1,bb@10.0.0.2:1"), "same", 2)
	expect.Equal(t, "the places with another run at one", noted(), listOf(own, "cc@10.0.0.1:1", "bb@10.0.0.2:1"))
	word(t, asks(",+@10.0.0.1:1,bb@10.0.0.2:1,+@10.0.0.3:1"), "same", 2)
	expect.Equal(t, "the places with two that the caller knows from another word", noted(), listOf(own, "cc@10.0.0.1:1", "bb@10.0.0.2:1"))
	word(t, asks(",-@10.0.0.1:1,bb@10.0.0.2:1"), "same", 2)
	expect.Equal(t, "the places without one that has left", noted(), listOf(own, "bb@10.0.0.2:1"))

	r := h.replica(h.master)
	h.m.attached(1)
	want(t, asks(",bb@10.0.0.2:1"), "places", r.place(false))
	want(t, asks(",bb@10.0.0.2:1,-"+r.place(false)), "places", r.place(false))
	word(t, asks(",bb@10.0.0.2:1,"+r.place(true)), "continued", 2)

	want(t, h.m.run(scripts.StoreLeave, markerKey, "10.0.0.2:1"), "left")
	want(t, h.m.run(scripts.StoreLeave, markerKey, "10.0.0.2:1"), "none")
	expect.Equal(t, "the places after one was said to be gone", noted(), listOf(own, r.place(true)))
	places := h.m.run(scripts.StorePlaces, markerKey)
	slices.Sort(places[1:])
	both := []string{h.master.Addr(), r.place(false)[1:]}
	slices.Sort(both)
	expect.Equal(t, "the places", places, append([]string{"noted"}, both...))
	want(t, h.m.run(scripts.StoreLeave, markerKey, r.place(false)[1:]+",10.0.0.9:1"), "left")
	expect.Equal(t, "the places after all others were said to be gone", noted(), own)

	// the places stay after a loss
	word(t, asks(",dd@10.0.0.4:1,"+r.place(true)), "same", 2)
	want(t, h.m.run(scripts.StoreRestored, markerKey), "marked")
	want(t, asks(","+r.place(true)), "places", "dd@10.0.0.4:1")
}

// A caller that has asked another server than this one is told so.
func TestFactsOfAnotherServerAreRefused(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		b.facts = strings.Replace(some, "ID", strings.Repeat("0a", 20), 1)
		want(t, b.run(scripts.Incarnation, markerKey), "ask", b.replid())
		want(t, b.open(opening{}), "ask", b.replid())
		expect.Equal(t, "the marker", b.do("EXISTS", markerKey[0]), any(int64(0)))
	})
}

// A call that is refused may be the last one before a replica that is attached becomes master, so
// it notes the replica; and nothing else.
func TestRefusedCallNotesTheReplicasThatAreAttached(t *testing.T) {
	t.Parallel()
	h := &histories{T: t, master: redistest.Start(t)}
	h.m = serve(t, h.master)
	calls := map[string]func() []string{
		markerKey[0]: func() []string { return h.m.run(scripts.Incarnation, markerKey) },
		openKeys[2]:  func() []string { return h.m.open(opening{}) },
		lockKeys[5]:  func() []string { return h.m.enter(ask{token: "a", span: 60_000}) },
		poolKeys[0]:  func() []string { return h.m.acquire(lease{nonce: "a"}) },
	}
	noted := func(key string) string {
		if key == poolKeys[0] {
			return h.m.do("HGET", key, "pool").(string)
		}
		return h.m.do("GET", key).(string)
	}
	right := "auto 0 all sentinel ID " + h.m.place(true)
	h.m.facts = right
	before := map[string]string{}
	for key, call := range calls {
		call()
		before[key] = noted(key)
	}
	id := h.m.replid()
	r := h.replica(h.master)
	h.m.attached(1)
	if h.m.replid() == id {
		t.Error("the first replica has not renamed the history")
	}
	h.m.facts = strings.Replace(right, "ID", strings.Repeat("0a", 20), 1)
	for key, call := range calls {
		want(t, call(), "ask", h.m.replid())
		after := noted(key)
		expect.Contains(t, "the note of "+key, after, r.place(false))
		without := strings.Replace(strings.Replace(after, r.place(false)+",", "", 1), ","+r.place(false), "", 1)
		expect.Equal(t, "the note of "+key+" but for that", without, before[key])
		want(t, call(), "ask", h.m.replid())
		expect.Equal(t, "the note of "+key+" after another call", noted(key), after)
	}
}

// A replica that takes writes shows the id of its master. At a plain URL no list says which
// replicas there are.
func TestServersThatAreRefused(t *testing.T) {
	t.Parallel()
	h := &histories{T: t, master: redistest.Start(t)}
	h.m = serve(t, h.master)
	h.m.note(some)
	_, r := h.more("--replica-read-only", "no")
	r.followOf(h.master)
	r.do("SET", "x", "x")
	r.facts = some
	_, err := r.try(scripts.Incarnation, markerKey)
	if !redis.HasErrorPrefix(err, "READONLY") {
		t.Errorf("a replica that takes writes: got %v, want READONLY", err)
	}
	h.m.attached(1)
	h.m.facts = strings.Replace(some, "some", "all", 1)
	want(t, h.m.open(opening{}), "unsuitable", "a replica is attached, and no list says which there are: --ack with a number, or the URL of Sentinel or the cluster")
}

// All that is there is believed, and the server is not asked: the user here may not.
func TestTrustAsksTheServerForNothing(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	admin := serve(t, server)
	admin.do("ACL", "SETUSER", "mute", "on", ">word", "~*", "&*", "+@all", "-info")
	options := clientOptions()
	options.Addr, options.Username, options.Password = server.Addr(), "mute", "word"
	b := &box{TB: t, kind: "redis", client: redis.NewClient(options), facts: "trust 0 some alone - -"}
	t.Cleanup(func() { _ = b.client.Close() })

	want(t, b.run(scripts.Incarnation, markerKey), "new", "trusted", "0")
	want(t, b.run(scripts.Incarnation, markerKey), "same", "trusted", "0")
	b.opens(opening{})
	b.do("INCRBY", openKeys[0], 5)
	for _, noted := range []string{strings.Repeat("0a", 20), strings.Repeat("0a", 20) + ":" + strings.Repeat("0b", 8) + ":7::00::", "trusted"} {
		b.do("SET", markerKey[0], noted+" 0")
		b.do("SET", openKeys[2], noted+" 7 0 1")
		id, _, _ := strings.Cut(noted, ":")
		want(t, b.run(scripts.Incarnation, markerKey), "same", id, "0")
		expect.Equal(t, "the era of a counter beside "+noted, b.at(opening{}, "5", false).era, "7")
	}
	b.do("SET", markerKey[0], "0:::::00:restored: 0")
	want(t, b.run(scripts.Incarnation, markerKey), "changed", "trusted", "1")
	b.do("SET", openKeys[2], "0:::::00:restored: 7 0 1")
	if got := b.opens(opening{}); !got.moved || got.era == "7" {
		t.Errorf("a counter beside a marker that says restored: got %+v, want one that has moved, in another era than 7", got)
	}
	b.do("DEL", openKeys[2])
	if got := b.opens(opening{}); !got.moved {
		t.Errorf("a counter without a marker: got %+v, want one that has moved", got)
	}
	if log := admin.do("ACL", "LOG").([]any); len(log) > 0 {
		t.Errorf("Redis has denied something: %v", log)
	}

	b.facts = strings.Replace(some, "ID", "-", 1)
	reply := b.run(scripts.Incarnation, markerKey)
	word(t, reply, "none", 1)
	expect.Contains(t, "the fact that is named", reply[1], "INFO")
	word(t, b.open(opening{}), "unsuitable", 1)
}

// A server that has no name for its history, or hides it, is not one that stays the same.
func TestServerWithoutAnIncarnation(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	serve(t, server).do("SET", openKeys[0], 5)
	for name, row := range map[string]struct {
		engine engines.Engine
		fact   string
	}{
		"none":  {engines.Engine{Info: map[string]string{"master_replid": ""}}, "INFO replication shows no master_replid"},
		"zeros": {engines.Engine{Info: map[string]string{"master_replid": engines.Zeros}}, "master_replid is " + engines.Zeros},
		"short": {engines.Engine{Info: map[string]string{"master_replid": "abc"}}, "master_replid is abc"},
		"not hex": {engines.Engine{Info: map[string]string{"master_replid": strings.Repeat("x", 40)}},
			"master_replid is " + strings.Repeat("x", 40)},
		"long": {engines.Engine{Info: map[string]string{"master_replid": strings.Repeat("a", 60)}},
			"master_replid is " + strings.Repeat("a", 50)},
		"forbidden": {engines.Engine{NotInScripts: []string{"INFO"}},
			"INFO is refused inside scripts (ERR This Redis command is not allowed from script)"},
	} {
		t.Run(name, func(t *testing.T) {
			options := clientOptions()
			options.Addr = engines.Start(t, server.Addr(), row.engine).Addr()
			b := &box{TB: t, kind: "redis", client: redis.NewClient(options), facts: strings.Replace(some, "ID", "-", 1)}
			defer b.client.Close()
			want(t, b.run(scripts.Incarnation, []string{"{" + name + "}"}), "none", row.fact)
			want(t, b.run(scripts.Incarnation, []string{"{" + name + "}"}), "none", row.fact)
			want(t, b.open(opening{}), "unsuitable", row.fact)
			b.facts = "trust 0 some alone - -"
			word(t, b.run(scripts.Incarnation, []string{"{" + name + "}"}), "same", 2)
		})
	}
	expect.Equal(t, "GET of the counter", serve(t, server).do("GET", openKeys[0]), "5")
}

// counter_incr notes nothing. What it would confirm by less than is noted is not added: a promotion
// would be believed to have it.
func TestScriptThatNotesNothingGoesOnOnlyWhereNothingIsToNote(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		b.facts = onDisk
		era := b.opens(opening{}).era
		incr := func() []string { return b.run(scripts.CounterIncr, openKeys, 1, 0, "", "", era, 0, "begin") }
		word(t, incr(), "ok", 3)
		b.facts = some
		want(t, incr(), "behind")
		b.at(opening{era: era}, "1", false)
		word(t, incr(), "ok", 3)
	})
}

// saves writes an RDB file, once a save for a replica has ended.
func (b *box) saves() {
	b.Helper()
	expect.Eventually(b, "the server saves", func() bool { return b.client.Do(b.Context(), "SAVE").Err() == nil })
}
