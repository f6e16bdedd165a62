package pipeline

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// Which replicas of a master a cluster lists. Its masters elect a replica that they know, also if
// its own master was told to forget it, so what any of them lists counts, and more than half have
// to answer: as many have to elect one.

// member is a line of CLUSTER NODES.
type member struct {
	id, address, master string // "-": it has no master, or that is not known
	myself, replica     bool
	epoch               int  // grows with each promotion in the cluster; a replica has its master's
	slots               bool // it has some
}

// view is what one master lists.
type view []member

func viewOf(text string) (all view) {
	for line := range strings.SplitSeq(text, "\n") {
		words := strings.Fields(line)
		if len(words) < 7 {
			continue
		}
		epoch, _ := strconv.Atoi(words[6])          // it is a number
		address, _, _ := strings.Cut(words[1], "@") // host:port@bus,name
		all = append(all, member{
			id: words[0], address: address, master: words[3],
			myself: strings.Contains(words[2], "myself"), replica: strings.Contains(words[2], "slave"),
			epoch: epoch, slots: len(words) > 8,
		})
	}
	return all
}

// self is the id of the server that has the view.
func (v view) self() string {
	if i := slices.IndexFunc(v, func(one member) bool { return one.myself }); i >= 0 {
		return v[i].id
	}
	return ""
}

func (v view) find(id string) (found member, is bool) {
	if i := slices.IndexFunc(v, func(one member) bool { return one.id == id }); i >= 0 {
		return v[i], true
	}
	return member{master: "-"}, false
}

// pair are two masters that had slots at once: they are of different sets.
type pair struct{ a, b string }

// replicasOf are the replicas of a server, and known is false if the view has it not. A view in
// which it is a replica itself has not heard yet that it was promoted: the others are its own.
func (v view) replicasOf(id string, apart map[pair]bool) (replicas []member, known bool) {
	self, known := v.find(id)
	for _, one := range v {
		if known && one.replica && one.id != id && v.mayFollow(one, self, apart) {
			replicas = append(replicas, one)
		}
	}
	return replicas, known
}

// mayFollow reports whether a replica is one of a master, or was of the one in whose place that was
// promoted: while it is away, it is listed as a replica of before, and may come back and be
// promoted with what it had then.
func (v view) mayFollow(one, master member, apart map[pair]bool) bool {
	if one.master == master.id || master.replica && one.master == master.master {
		return true
	}
	former, listed := v.find(one.master)
	switch {
	case master.replica || former.slots:
		return false
	case former.replica:
		return former.master == master.id
	case !listed:
		return true // it was forgotten
	}
	return former.epoch < master.epoch && !apart[pair{former.id, master.id}]
}

// split takes in which masters have slots at once. A replica may come to another set.
func (v view) split(apart map[pair]bool) {
	replicas := map[string]bool{}
	var masters []string
	for _, one := range v {
		if one.replica {
			replicas[one.id] = true
		} else if one.slots {
			masters = append(masters, one.id)
		}
	}
	maps.DeleteFunc(apart, func(of pair, _ bool) bool { return replicas[of.a] || replicas[of.b] })
	for _, one := range masters {
		for _, other := range masters {
			if one != other {
				apart[pair{one, other}] = true
			}
		}
	}
}

// unionOf are the addresses of all replicas of the server whose view is the first. A node is known
// by its id, and has the address that the first view with it names.
func unionOf(views []view, masters int, apart map[pair]bool) (addresses []string, err error) {
	self, answered, ids := views[0].self(), 0, []string{}
	for _, one := range views {
		replicas, known := one.replicasOf(self, apart)
		if known {
			answered++
		}
		for _, replica := range replicas {
			if !slices.Contains(ids, replica.id) {
				ids, addresses = append(ids, replica.id), append(addresses, replica.address)
			}
		}
	}
	if 2*answered <= masters {
		return nil, fmt.Errorf("%d of %d masters have answered, and more than half have to", answered, masters)
	}
	return addresses, nil
}

// members asks a cluster's masters for their views. It is safe for concurrent use.
type members struct {
	nodes   nodes
	timeout time.Duration // of a call

	mu    sync.Mutex
	asked time.Time
	views map[*redis.Client]view // of all masters: nil where one has not answered
	apart map[pair]bool
}

// viewsAge is how old what the other masters list may be: every master has its replicas listed, so
// one question to all serves several.
const viewsAge = time.Second

// of reads the replicas of a master. The addresses there are what nodes announce, and those in INFO
// what replicas connect from, unless they announce that too.
func (m *members) of(ctx context.Context, node *redis.Client, _ []string) (Listed, error) {
	text, err := node.ClusterNodes(ctx).Result()
	if err != nil {
		return Listed{}, err
	}
	all, err := m.all(ctx)
	if err != nil {
		return Listed{}, err
	}
	views, masters := []view{viewOf(text)}, len(all)
	if _, counted := all[node]; !counted {
		masters++ // it has no slot yet, and one comes
	}
	for other, one := range all {
		if other != node && one != nil {
			views = append(views, one)
		}
	}
	m.mu.Lock()
	addresses, err := unionOf(views, masters, m.apart)
	m.mu.Unlock()
	if err != nil {
		return Listed{}, err
	}
	announced, err := node.ConfigGet(ctx, "cluster-announce-ip").Result()
	return Listed{Addresses: addresses, Comparable: err == nil && announced["cluster-announce-ip"] == ""}, nil
}

// all are the views of all masters, asked for by one caller for those that come meanwhile.
func (m *members) all(ctx context.Context) (map[*redis.Client]view, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.views != nil && time.Since(m.asked) < viewsAge {
		return m.views, nil
	}
	began := time.Now()
	var mu sync.Mutex
	views := map[*redis.Client]view{}
	// one that hangs must not take all of the call's time, nor where it is asked for the masters
	short, cancel := context.WithTimeout(ctx, m.timeout/6)
	defer cancel()
	err := m.nodes.each(short, func(_ context.Context, other *redis.Client) error {
		ctx, cancel := context.WithTimeout(ctx, m.timeout/3)
		defer cancel()
		text, err := other.ClusterNodes(ctx).Result()
		mu.Lock()
		defer mu.Unlock()
		views[other] = nil
		if err == nil {
			views[other] = viewOf(text)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("the masters of the cluster: %w", err)
	}
	for _, one := range views {
		if one != nil {
			one.split(m.apart) // of one: there may be many masters
			break
		}
	}
	if !errors.Is(ctx.Err(), context.Canceled) { // one that gives up has not heard all
		m.asked, m.views = began, views
	}
	return views, nil
}
