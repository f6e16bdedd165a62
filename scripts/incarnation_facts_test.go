package scripts_test

import (
	"cmp"
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

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
		covers[strings.Split(word, ":")[3]] = true
	}
	if len(covers) != 1 {
		b.Fatalf("the markers have different covers: %v", covers)
	}
	for cover := range covers {
		return cover
	}
	return ""
}

// hasToConfirmByAll has callers with these facts find a cover of all, which they would lower: a
// replica that lags shows it still. They change nothing.
func (b *box) hasToConfirmByAll(facts ...string) {
	b.Helper()
	b.facts = ofAll
	before := b.look(append(openKeys, markerKey...)...)
	for _, b.facts = range facts {
		want(b, b.run(scripts.Incarnation, markerKey), "all", b.replid(), "")
		want(b, b.open(opening{}), "all", b.replid(), "")
		word(b, b.run(scripts.CounterIncr, openKeys, 1, 0, "", "", "1"), "behind", 0)
	}
	b.same(before)
}

// setCover notes another cover.
func (b *box) setCover(cover string) {
	b.Helper()
	b.setField(3, cover)
}

// setField changes a field of the words that are noted.
func (b *box) setField(n int, value string) {
	b.Helper()
	for _, key := range []string{markerKey[0], openKeys[2]} {
		word, rest, _ := strings.Cut(b.do("GET", key).(string), " ")
		fields := strings.Split(word, ":")
		fields[n] = value
		b.do("SET", key, strings.Join(fields, ":")+" "+rest)
	}
}

// judge fails the test unless a caller with these facts finds that the state continues, or does
// not. ID in them stands for the server's incarnation. With `asks` it is first asked for that.
func (b *box) judge(facts string, want string, asks bool) {
	b.Helper()
	facts = strings.ReplaceAll(facts, "ID", b.replid())
	asked := strings.Fields(facts)[4] != "-"
	if asks {
		words := strings.Fields(facts)
		b.facts = strings.Join(append(words[:4], "-", "-"), " ")
		for _, reply := range [][]string{b.run(scripts.Incarnation, markerKey), b.open(opening{})} {
			if len(reply) != 3 || reply[0] != "ask" || reply[2] != b.replid() || reply[1] == reply[2] {
				b.Fatalf("with the facts %q: got %v, want ask, the noted id, %s", b.facts, reply, b.replid())
			}
		}
	} else if asked {
		b.Fatal("facts that were asked for without a question")
	}
	b.facts = facts
	if got := b.run(scripts.Incarnation, markerKey); got[0] != want || got[1] != b.replid() {
		b.Errorf("with the facts %q: got %v, want %s %s\nINFO: %s", facts, got, want, b.replid(), b.do("INFO", "replication"))
	}
	got := b.opens(opening{})
	if moved := want == "changed"; got.moved != moved || !moved && got.value != "5" {
		b.Errorf("the counter with the facts %q: got %+v, want moved %v", facts, got, moved)
	}
	want = "same"
	if got := b.run(scripts.Incarnation, markerKey); got[0] != want {
		b.Errorf("asked again with the facts %q: got %v, want %s", facts, got, want)
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

const ofAll = "auto 20 1 alone - -" // the facts of a caller whose one replica confirms each write

// What real servers show after what really happens to them, and what is concluded from it.
var realHistories = []struct {
	name    string
	args    []string // of the master
	noted   string   // the facts of the caller before; "" = ofAll
	happens func(h *histories) *box
	now     string // and after; "" = ofAll
	asks    bool
	want    string
	cover   string // that is noted then; "" = any
}{
	{name: "promotion, confirmed by all", happens: func(h *histories) *box {
		r := h.replica(h.master)
		h.m.note(ofAll)
		h.m.acknowledged()
		r.promote()
		return r
	}, want: "continued", cover: "20"},
	{name: "promotion, no replica had been seen", happens: func(h *histories) *box {
		r := h.replica(h.master)
		h.m.note(ofAll)
		h.m.setCover("10")
		h.m.acknowledged()
		r.promote()
		return r
	}, want: "changed", cover: "20"},
	{name: "promotion, confirmed by too few", happens: func(h *histories) *box {
		r := h.replica(h.master)
		h.m.note("auto 20 0 alone - -")
		h.m.acknowledged()
		r.promote()
		return r
	}, want: "changed"},
	{name: "promotion, and one that confirms by too few has asked", happens: func(h *histories) *box {
		r := h.replica(h.master)
		h.m.note(ofAll)
		h.m.hasToConfirmByAll("auto 20 0 alone - -", "auto 10 0 alone - -", "auto 00 0 alone - -")
		h.m.acknowledged()
		r.promote()
		r.hasToConfirmByAll("auto 10 0 alone - -", "auto 00 0 alone - -")
		return r
	}, want: "continued", cover: "20"},
	{name: "two promotions", happens: func(h *histories) *box {
		return promotions(h, false)
	}, want: "changed"},
	{name: "two promotions, and a call between", happens: func(h *histories) *box {
		return promotions(h, true)
	}, want: "continued", cover: "20"},
	{name: "a master that starts from an RDB file names the id in it as the one before", happens: func(h *histories) *box {
		h.replica(h.master)
		h.m.note(ofAll)
		before := h.m.replid()
		h.m.saves()
		h.m.do("INCRBY", openKeys[0], 100) // is lost
		h.m.acknowledged()
		h.master.Kill()
		h.master.Restart()
		expect.MustEqual(h, "master_replid2 after a start from an RDB file", h.m.info("master_replid2"), before)
		return h.m
	}, want: "changed"},
	{name: "a replica that starts from an RDB file and is promoted without its master", happens: func(h *histories) *box {
		host, port, _ := net.SplitHostPort(h.master.Addr())
		server, r := h.more("--replicaof", host+" "+port)
		expect.Eventually(h, "the replica is in sync", func() bool { return r.info("master_link_status") == "up" })
		h.m.note(ofAll)
		h.m.acknowledged()
		before := h.m.replid()
		r.do("SAVE")
		h.m.do("INCRBY", openKeys[0], 100) // is lost
		h.m.acknowledged()
		h.master.Kill()
		server.Kill()
		server.Restart()
		r.promote()
		expect.MustEqual(h, "master_replid2 of a replica that has started from an RDB file and is promoted", r.info("master_replid2"), before)
		return r
	}, want: "changed"},
	{name: "a replica that starts from an RDB file and is promoted in the middle of its synchronisation", happens: cutShort, want: "changed"},
	{name: "a copy is made of a server without a backlog", noted: "auto 10 0 alone - -", happens: func(h *histories) *box {
		before := h.m.replid()
		h.attach(h.master)
		h.m.renamed(before)
		return h.m
	}, now: "auto 10 0 alone - -", want: "continued", cover: "10"},
	{name: "and its backlog is freed", noted: "auto 10 0 alone - -", happens: func(h *histories) *box {
		h.m.do("CONFIG", "SET", "repl-backlog-ttl", 1)
		before := h.m.replid()
		conn := h.attach(h.master)
		h.m.renamed(before)
		h.m.judge("auto 10 0 alone - -", "continued", false)
		before = h.m.replid()
		_ = conn.Close()
		h.m.renamed(before)
		return h.m
	}, now: "auto 10 0 alone - -", want: "continued", cover: "10"},
	{name: "and nobody has called between", noted: "auto 20 1 alone - -", happens: func(h *histories) *box {
		h.m.do("CONFIG", "SET", "repl-backlog-ttl", 1)
		before := h.m.replid()
		conn := h.attach(h.master)
		h.m.renamed(before)
		before = h.m.replid()
		_ = conn.Close()
		h.m.renamed(before)
		return h.m
	}, want: "continued", cover: "20"},
	{name: "the first replica attaches", noted: "auto 10 0 alone - -", happens: func(h *histories) *box {
		before := h.m.replid()
		h.replica(h.master)
		h.m.renamed(before)
		h.m.attached(1)
		return h.m
	}, now: "auto 10 0 alone - -", want: "continued", cover: "00"},
	{name: "the first replica attaches, and confirms", noted: "auto 20 all alone - -", happens: func(h *histories) *box {
		h.replica(h.master)
		h.m.attached(1)
		return h.m
	}, now: "auto 20 all alone - -", want: "continued", cover: "20"},
	{name: "a replica has gone that did not confirm", noted: "auto 00 0 alone - -", happens: func(h *histories) *box {
		return h.m
	}, now: "auto 10 0 alone - -", want: "same", cover: "00"},
	{name: "demoted and promoted back, without its backlog, confirmed by too few", happens: func(h *histories) *box {
		return thereAndBack(h, "auto 00 0 alone - -")
	}, want: "changed"},
	{name: "demoted and promoted back, without its backlog, confirmed by all", happens: func(h *histories) *box {
		return thereAndBack(h, ofAll)
	}, want: "changed"},
	{name: "told to follow a server that is not there, and master again", noted: "auto 10 0 alone - -", happens: func(h *histories) *box {
		h.m.aside(nobodyListens(h))
		return h.m
	}, now: "auto 10 0 alone - -", want: "continued", cover: "10"},
	{name: "the same, beside a replica that confirms", happens: func(h *histories) *box {
		r := h.replica(h.master)
		h.m.note(ofAll)
		h.m.aside(nobodyListens(h))
		expect.Eventually(h, "the replica follows again", func() bool { return r.info("master_link_status") == "up" })
		return h.m
	}, want: "continued", cover: "20"},
	{name: "the same, beside one that does not, and may have served meanwhile", happens: func(h *histories) *box {
		h.replica(h.master)
		h.m.note("auto 00 0 alone - -")
		h.m.aside(nobodyListens(h))
		return h.m
	}, now: "auto 00 0 alone - -", want: "changed"},
	{name: "a failover by hand that is called off", happens: func(h *histories) *box {
		server, r := h.more()
		r.followOf(h.master)
		h.m.note(ofAll)
		h.m.acknowledged()
		server.Pause()
		h.m.do("SET", "more", "than it has")
		h.m.do("FAILOVER", "TIMEOUT", 1, "TO", "127.0.0.1", portOf(server), "FORCE")
		expect.Eventually(h, "the server is to follow its replica", func() bool {
			return h.m.info("master_failover_state") == "failover-in-progress"
		})
		h.m.do("FAILOVER", "ABORT")
		server.Resume()
		return h.m
	}, want: "continued", cover: "20"},
	{name: "told to follow an empty server, for a moment", noted: "auto 10 0 alone - -", happens: func(h *histories) *box {
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
		return h.m
	}, now: "auto 10 0 alone - -", want: "changed"},
	{name: "told to follow a server that is not there, after it has read from another", noted: "auto 10 0 alone - -", happens: func(h *histories) *box {
		h.m.setField(2, "7")
		h.m.aside(nobodyListens(h))
		return h.m
	}, now: "auto 10 0 alone - -", want: "changed"},
	{name: "told to follow a server that is not there, and restarted", args: durable, noted: "auto 10 0 alone - -", happens: func(h *histories) *box {
		h.m.aside(nobodyListens(h))
		return killed(h)
	}, now: "auto 10 0 alone - -", want: "changed"},
	{name: "promotion, confirmed by all after fewer", happens: func(h *histories) *box {
		r := h.replica(h.master)
		h.m.note("auto 00 0 alone - -")
		h.m.judge(ofAll, "same", false)
		h.m.acknowledged()
		r.promote()
		return r
	}, want: "continued", cover: "20"},
	{name: "stopped in order, on disk", args: durable, noted: "auto 11 0 alone - -", happens: stopped, now: "auto 11 0 alone ID -",
		asks: true, want: "continued", cover: "11"},
	{name: "killed, on disk", args: durable, noted: "auto 11 0 alone - -", happens: killed, now: "auto 11 0 alone ID -", asks: true,
		want: "continued", cover: "11"},
	{name: "killed, on disk and confirmed by all", args: durable, noted: "auto 21 all alone - -", happens: killed,
		now: "auto 21 all alone ID -", asks: true, want: "continued", cover: "21"},
	{name: "killed, on disk, and no restart is believed", args: durable, noted: "wait 11 0 alone - -", happens: killed,
		now: "wait 11 0 alone - -", want: "changed"},
	{name: "killed, not on disk now", args: durable, noted: "auto 11 0 alone - -", happens: killed, now: "auto 10 0 alone ID -", asks: true,
		want: "changed"},
	{name: "killed, was not on disk", args: durable, noted: "auto 10 0 alone - -", happens: killed, now: "auto 11 0 alone - -",
		want: "changed", cover: "11"},
	{name: "killed, on disk since a call", args: durable, noted: "auto 10 0 alone - -", happens: func(h *histories) *box {
		h.m.judge("auto 11 0 alone - -", "same", false)
		return killed(h)
	}, now: "auto 11 0 alone ID -", asks: true, want: "continued", cover: "11"},
	{name: "killed, on disk, with a replica that did not confirm", args: durable, noted: "auto 01 0 alone - -", happens: killed,
		now: "auto 01 0 alone - -", want: "changed"},
	{name: "killed, written every second", args: []string{"--appendonly", "yes", "--appendfsync", "everysec"}, noted: "auto 10 0 alone - -",
		happens: killed, now: "auto 10 0 alone - -", want: "changed"},
	{name: "killed, asked for an incarnation before", args: durable, noted: "auto 11 0 alone - -", happens: func(h *histories) *box {
		b := killed(h)
		b.facts = "auto 11 0 alone " + strings.Repeat("0a", 20) + " -"
		word(b, b.run(scripts.Incarnation, markerKey), "ask", 2)
		return b
	}, now: "auto 11 0 alone ID -", asks: true, want: "continued"},
}

var durable = []string{"--appendonly", "yes", "--appendfsync", "always"}

func stopped(h *histories) *box {
	h.master.Stop()
	h.master.Restart()
	return h.m
}

// killed is called where all that was noted is to be found again: a write to the file may be put
// off where it is not synchronised each time.
func killed(h *histories) *box {
	expect.Eventually(h, "the append-only file has all", func() bool {
		buffered := h.m.field("persistence", "aof_buffer_length")
		return buffered == "0" || buffered == "" // there is no such file
	})
	h.master.Kill()
	h.master.Restart()
	return h.m
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
func promotions(h *histories, between bool) *box {
	server, first := h.more()
	first.followOf(h.master)
	second := h.replica(server)
	h.m.note(ofAll)
	expect.Eventually(h, "the second replica has what was noted", func() bool { return second.do("GET", openKeys[0]) == "5" })
	first.promote()
	if between {
		first.judge(ofAll, "continued", false)
	}
	expect.Eventually(h, "the second replica follows the first as a master", func() bool {
		return second.replid() == first.replid() && second.info("master_link_status") == "up"
	})
	first.do("SET", "x", "x")
	first.acknowledged()
	second.promote()
	return second
}

// cutShort promotes a replica that has started from an RDB file, and has read a part of what its
// master sends it since.
func cutShort(h *histories) *box {
	host, port, _ := net.SplitHostPort(h.master.Addr())
	server, r := h.more("--replicaof", host+" "+port)
	expect.Eventually(h, "the replica is in sync", func() bool { return r.info("master_link_status") == "up" })
	h.m.note(ofAll)
	h.m.acknowledged()
	before := h.m.replid()
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
	return r
}

// thereAndBack demotes the master, promotes it again, and waits until it has renamed its history.
func thereAndBack(h *histories, facts string) *box {
	server, r := h.more()
	r.followOf(h.master)
	h.m.note(facts)
	h.m.acknowledged()
	r.promote()
	h.m.followOf(server)
	r.do("SET", "x", "x")
	r.acknowledged()
	h.m.promote()
	h.m.do("CONFIG", "SET", "repl-backlog-ttl", 1)
	expect.Eventually(h, "the server has no history before its own", func() bool {
		return h.m.info("master_replid2") == engines.Zeros
	})
	return h.m
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
			now := row.happens(h)
			now.judge(cmp.Or(row.now, ofAll), row.want, row.asks)
			if row.cover != "" {
				expect.Equal(t, "the cover that is noted", now.cover(), row.cover)
			}
		})
	}
}

// A slot takes its state along to another master. While the one that it came from lives, that is no
// loss; once it is gone, no server can say.
func TestMovedSlotContinuesWhileItsFormerMasterLives(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3, 0)
	for name, outcome := range map[string]string{"WAS": "continued", "-": "changed", strings.Repeat("0a", 20): "changed"} {
		t.Run(name, func(t *testing.T) {
			key := []string{"{" + name + "}"}
			b := serve(t, cluster.MasterOf(key[0]))
			b.facts = "auto 10 0 cluster - -"
			was := b.replid()
			word(t, b.run(scripts.Incarnation, key), "new", 2)
			word(t, b.run(scripts.Incarnation, key), "same", 2)
			m := cluster.StartMove(key[0])
			m.Rest(0)
			m.Finish()
			b = serve(t, m.To)
			b.facts = "auto 10 0 cluster - -"
			want(t, b.run(scripts.Incarnation, key), "ask", was, b.replid())
			b.facts = "auto 10 0 cluster " + b.replid() + " " + strings.ReplaceAll(name, "WAS", was)
			word(t, b.run(scripts.Incarnation, key), outcome, 2)
			b.facts = "auto 10 0 cluster - -"
			word(t, b.run(scripts.Incarnation, key), "same", 2)
		})
	}
}

// State that names another master of a cluster asks for it, on every kind of store.
func TestIncarnationAsksForAnotherMasterOfTheCluster(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		other := strings.Repeat("0a", 20)
		b.do("SET", markerKey[0], other+" 3")
		before := b.look(markerKey...)
		b.facts = "auto 00 0 cluster - -"
		want(t, b.run(scripts.Incarnation, markerKey), "ask", other, b.replid())
		b.same(before)
		b.facts = "auto 00 0 cluster " + b.replid() + " " + other
		want(t, b.run(scripts.Incarnation, markerKey), "continued", b.replid(), "3")
		want(t, b.run(scripts.Incarnation, markerKey), "same", b.replid(), "3")
	})
}

// All that is there is believed, and the server is not asked: the user here may not.
func TestTrustAsksTheServerForNothing(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	admin := serve(t, server)
	admin.do("ACL", "SETUSER", "mute", "on", ">word", "~*", "&*", "+@all", "-info")
	options := clientOptions()
	options.Addr, options.Username, options.Password = server.Addr(), "mute", "word"
	b := &box{TB: t, kind: "redis", client: redis.NewClient(options), facts: "trust 00 0 alone - -"}
	t.Cleanup(func() { _ = b.client.Close() })

	want(t, b.run(scripts.Incarnation, markerKey), "new", "trusted", "0")
	want(t, b.run(scripts.Incarnation, markerKey), "same", "trusted", "0")
	b.opens(opening{})
	b.do("INCRBY", openKeys[0], 5)
	for _, noted := range []string{strings.Repeat("0a", 20), strings.Repeat("0a", 20) + ":" + strings.Repeat("0b", 20) + ":7:00:", "trusted"} {
		b.do("SET", markerKey[0], noted+" 0")
		b.do("SET", openKeys[2], noted+" 7 0 1")
		id, _, _ := strings.Cut(noted, ":")
		want(t, b.run(scripts.Incarnation, markerKey), "same", id, "0")
		expect.Equal(t, "the era of a counter beside "+noted, b.at(opening{}, "5", false).era, "7")
	}
	b.do("SET", markerKey[0], "restored 0")
	want(t, b.run(scripts.Incarnation, markerKey), "changed", "trusted", "1")
	b.do("SET", openKeys[2], "restored 7 0 1")
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

	b.facts = "auto 00 0 alone - -"
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
			b := &box{TB: t, kind: "redis", client: redis.NewClient(options)}
			defer b.client.Close()
			want(t, b.run(scripts.Incarnation, []string{"{" + name + "}"}), "none", row.fact)
			want(t, b.run(scripts.Incarnation, []string{"{" + name + "}"}), "none", row.fact)
			want(t, b.open(opening{}), "unsuitable", row.fact)
			b.facts = "trust 00 0 alone - -"
			word(t, b.run(scripts.Incarnation, []string{"{" + name + "}"}), "same", 2)
		})
	}
	expect.Equal(t, "GET of the counter", serve(t, server).do("GET", openKeys[0]), "5")
}

// counter_incr notes nothing. What it would confirm by less than is noted is not added: a promotion
// would be believed to have it.
func TestScriptThatNotesNothingGoesOnOnlyWhereNothingIsToNote(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		b.facts = "auto 11 0 alone - -"
		era := b.opens(opening{}).era
		incr := func() []string { return b.run(scripts.CounterIncr, openKeys, 1, 0, "", "", era) }
		word(t, incr(), "ok", 3)
		b.facts = "auto 10 0 alone - -"
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

// Where no list says how many replicas there are, as many confirm as have before: a process that
// has seen fewer is told how many, and one that was promoted is none of them any more.
func TestAsManyConfirmAsHaveBefore(t *testing.T) {
	t.Parallel()
	h := &histories{T: t}
	h.master, h.m = h.more()
	r := h.replica(h.master)
	h.m.facts = "auto 20 all2 alone - -"
	word(t, h.m.run(scripts.Incarnation, markerKey), "new", 2)
	expect.Contains(t, "the word that is noted", h.m.do("GET", markerKey[0]).(string), ":20:missing:2 ")
	for _, fewer := range []string{"all0", "all1"} {
		h.m.facts = "auto 20 " + fewer + " alone - -"
		want(t, h.m.run(scripts.Incarnation, markerKey), "all", h.m.replid(), "2")
	}
	h.m.facts = "auto 20 all3 alone - -"
	word(t, h.m.run(scripts.Incarnation, markerKey), "same", 2)
	h.m.facts = "auto 20 all alone - -" // there is a list
	word(t, h.m.run(scripts.Incarnation, markerKey), "same", 2)
	h.m.acknowledged()
	r.promote()
	r.facts = "auto 20 all1 alone - -"
	want(t, r.run(scripts.Incarnation, markerKey), "all", r.replid(), "2")
	r.facts = "auto 20 all2 alone - -"
	word(t, r.run(scripts.Incarnation, markerKey), "continued", 2)
	want(t, strings.Split(strings.Fields(r.do("GET", markerKey[0]).(string))[0], ":")[3:], "20", "missing", "2")

	// an operator has said that they are gone for good
	want(t, r.run(scripts.StoreRestored, markerKey, "replicas-gone"), "marked")
	r.facts = "auto 20 all0 alone - -"
	word(t, r.run(scripts.Incarnation, markerKey), "same", 2)
}

// A pool that was copied into a server that ran when the pool was used is none that this server has
// had before a restart.
func TestPoolThatWasCopiedIntoARunningServerIsALoss(t *testing.T) {
	t.Parallel()
	h := &histories{T: t}
	h.master, h.m = h.more(durable...)
	_, other := h.more(durable...)
	time.Sleep(3 * time.Second) // its start is known to a second
	const facts = "auto 11 0 alone - -"
	h.m.facts = facts
	h.m.lease(lease{nonce: "n1"})
	for _, key := range poolKeys {
		other.do("RESTORE", key, 0, h.m.do("DUMP", key))
	}
	other.facts = facts
	word(t, other.acquire(lease{nonce: "n2", newPools: "wait"}), "quarantined", 3)
	other.facts = "auto 11 0 alone " + other.replid() + " -"
	word(t, other.acquire(lease{nonce: "n2", newPools: "wait"}), "quarantined", 3)
}
