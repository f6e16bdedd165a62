package pipeline

import (
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// attached is what INFO shows of these replicas.
func attached(addresses ...string) (found replication) {
	for _, address := range addresses {
		found.replicas++
		found.attached += address + " "
	}
	return found
}

const (
	a = "10.0.0.1:6379"
	b = "10.0.0.2:6379"
	c = "10.0.0.3:6379"
)

// One that has come does not stand in for one that is away.
func TestReplicasAreKnownByTheirAddresses(t *testing.T) {
	none, host, long := attached(), "redis-0.redis:6379", "172.18.0.9:6379"
	for name, row := range map[string]struct {
		lists []Listed        // as read, one after another; nil = there is none
		seen  [][]replication // attached when a list was read, and after it
		want  int
	}{
		"none":                                     {nil, [][]replication{{none}}, 0},
		"one after another":                        {nil, [][]replication{{attached(a), none, attached(b)}}, 2},
		"the same again":                           {nil, [][]replication{{attached(a), none, attached(a)}}, 1},
		"two links of one, one after the other":    {nil, [][]replication{{attached(a), attached(a, a), attached(a)}}, 1},
		"listed, and away":                         {[]Listed{{[]string{a, b}, true}}, [][]replication{{none}}, 2},
		"listed, and another has come":             {[]Listed{{[]string{a}, true}}, [][]replication{{none, attached(b)}}, 2},
		"the list has it too":                      {[]Listed{{[]string{a}, true}, {[]string{a, b}, true}}, [][]replication{{none, attached(b)}, {attached(b)}}, 2},
		"the list is shorter":                      {[]Listed{{[]string{a, b}, true}, {[]string{b}, true}}, [][]replication{{attached(a, b)}, {attached(b)}}, 1},
		"more than are listed":                     {[]Listed{{[]string{host}, true}}, [][]replication{{none, attached(a, b)}}, 2},
		"names are not compared":                   {[]Listed{{[]string{host}, true}}, [][]replication{{attached(a)}}, 1},
		"other addresses are announced":            {[]Listed{{[]string{a}, false}}, [][]replication{{attached(long)}}, 1},
		"announced, and the same as was seen here": {[]Listed{{[]string{a}, false}, {[]string{a}, false}}, [][]replication{{attached(a)}, {none, attached(c)}}, 2},
	} {
		var r replicas
		for i, seen := range row.seen {
			if row.lists != nil {
				r.read(row.lists[i], seen[0])
			}
			for _, found := range seen {
				r.saw(found)
			}
		}
		expect.Equal(t, name+": how many have to confirm", r.need(), row.want)
		expect.Equal(t, name+": confirmed by as many", r.confirmedBy(row.want), row.lists != nil)
		expect.Equal(t, name+": confirmed by fewer", r.confirmedBy(row.want-1), row.want == 0)
		expect.Equal(t, name+": confirmed by all", r.confirmedBy(AckAll), true)
	}
}

// What a word says was confirmed by so many is confirmed by as many, unless there is a list.
func TestAsManyReplicasAsHaveConfirmedBefore(t *testing.T) {
	var r replicas
	r.note(2)
	r.saw(attached(a))
	expect.Equal(t, "without a list", r.need(), 2)
	r.read(Listed{[]string{a}, true}, attached(a))
	expect.Equal(t, "with one", r.need(), 1)
}

// Of two links with one address one may be of before a replica was parted from its master. Both are
// replicas once both have confirmed.
func TestTwoLinksOfOneAddress(t *testing.T) {
	var r replicas
	both := func(name string, need, toCount int) {
		t.Helper()
		expect.Equal(t, name+": how many have to confirm", r.need(), need)
		expect.Equal(t, name+": to count", r.toCount(), toCount)
	}
	r.saw(attached(a))
	both("one", 1, 1)
	r.saw(attached(a, a))
	both("two", 1, 2)
	expect.Equal(t, "to note", r.toHold(attached(a, a)), a)
	r.counted(1)
	both("one has confirmed", 1, 2)
	r.saw(attached(a))
	both("one has ended", 1, 1)
	r.saw(attached(a, a))
	r.counted(2)
	both("both have confirmed", 2, 2)
	expect.Equal(t, "to note of both", r.toHold(attached(a, a)), a+" "+a)
	r.saw(attached(a, b))
	both("one is away, and another has come", 3, 3)
}

// A tool that confirms is counted by WAIT, so it is waited for besides, as long as it is there.
func TestToolsAreCountedBeside(t *testing.T) {
	var r replicas
	with := func(tools int, addresses ...string) replication {
		found := attached(addresses...)
		found.tools = tools
		return found
	}
	for _, step := range []struct {
		seen replication
		want int
	}{
		{with(1), 0}, {with(1, a), 2}, {with(2, a, b), 4}, {with(1), 3}, {with(0), 2},
	} {
		r.saw(step.seen)
		expect.Equal(t, fmt.Sprintf("to count after %+v", step.seen), r.toCount(), step.want)
	}
}

func TestReplicationOfInfo(t *testing.T) {
	answer := redis.NewStringCmd(t.Context())
	answer.SetVal("# Replication\r\nrole:master\r\nconnected_slaves:5\r\n" +
		"slave0:ip=10.0.0.1,port=6379,state=online,offset=0,lag=0\r\n" +
		"slave1:ip=10.0.0.9,port=0,state=online,offset=0,lag=1\r\n" +
		"slave2:ip=10.0.0.9,port=0,state=online,offset=120,lag=1\r\n" +
		"slave3:ip=fe80::1,port=6380,state=wait_bgsave,offset=0,lag=0,type=replica\r\n" +
		"slave4:ip=10.0.0.9,port=0,state=online,offset=7,lag=0,type=replica\r\n" +
		"master_replid:abc\r\nmaster_replid2:def\r\n")
	found, ok := readReplication(answer)
	expect.Equal(t, "it is read", ok, true)
	expect.Equal(t, "what it says", found, replication{id: "abc", before: "def", replicas: 2, attached: "10.0.0.1:6379 [fe80::1]:6380 ", tools: 2})
}
