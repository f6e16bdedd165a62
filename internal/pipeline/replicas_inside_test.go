package pipeline

import (
	"testing"

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
		"two behind one address":                   {nil, [][]replication{{attached(a, a)}}, 2},
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
