package pipeline

import (
	"context"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// Places are the servers of one set, by the list of Sentinel or of a cluster. A server is known by
// its place, host:port, whichever process runs there.
type Places struct {
	Own string // of the server that was asked
	// the other places, unreachable ones included: the first digits of the run_id there, "" where
	// the list does not name it
	Others map[string]string
	Moved  []string // places that belong to another master now
	Slot   int      // the first that it has, in a cluster
}

// places are the places that have to confirm the writes to one server. A place never leaves
// because its server is away: see scripts/lib/incarnation.lua. It is safe for concurrent use.
type places struct {
	mu   sync.Mutex
	own  string
	runs map[string]string // by place, the server's own included, or hasLeft, or told
	away map[string]bool   // places of other masters: a word's place that is one of them leaves
	came []string          // replicas that were found attached since the list was read
	same string            // the list of a word that names the same places and runs
}

const (
	hasLeft = "-"
	// told is of a place that is known from a word alone. It is waited for, and noted in no other
	// word: else a word that was rid of a place which is gone would get it back from another.
	told = "+"
)

// next returns the places by a list, the replicas that are attached and those that have come since
// the last list; came is how many these are. [places.replace] puts them in place.
func (p *places) next(found Places, run string, attached []link) (fresh *places, came int) {
	fresh = &places{own: found.Own, runs: map[string]string{}, away: map[string]bool{}}
	for _, place := range found.Moved {
		fresh.away[place] = true
	}
	maps.Copy(fresh.runs, found.Others)
	fresh.attach(attached)
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, place := range p.came {
		fresh.comeLocked(place)
	}
	fresh.runs[fresh.own] = run
	return fresh, len(p.came)
}

func (p *places) replace(fresh *places, came int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.own, p.runs, p.away, p.same, p.came = fresh.own, fresh.runs, fresh.away, "", p.came[came:]
	for _, place := range p.came {
		p.comeLocked(place)
	}
}

// forget has nobody confirm.
func (p *places) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.runs, p.came = nil, nil
}

// attach adds the replicas that are attached, and reports whether one of them was not known.
func (p *places) attach(attached []link) (more bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, one := range attached {
		if p.comeLocked(one.place) {
			p.came, more = append(p.came, one.place), true
		}
	}
	return more
}

func (p *places) comeLocked(place string) bool {
	run, known := p.runs[place]
	if known && run != hasLeft && run != told {
		return false
	}
	if p.runs == nil {
		p.runs = map[string]string{}
	}
	p.runs[place], p.same = "", ""
	return true
}

// add takes in places, as run@host:port, that a script has found.
func (p *places) add(found []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.same = ""
	for _, one := range found {
		_, place, _ := strings.Cut(one, "@")
		p.runs[place] = told
		if p.away[place] {
			p.runs[place] = hasLeft
			delete(p.away, place) // a script that asks for it again finds it attached
		}
	}
}

// text is the list for scripts/lib/incarnation.lua.
func (p *places) text() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var list strings.Builder
	list.WriteString(p.runs[p.own] + "@" + p.own)
	for _, place := range slices.Sorted(maps.Keys(p.runs)) {
		if place != p.own {
			list.WriteString("," + p.runs[place] + "@" + place)
		}
	}
	return list.String()
}

// noted reports whether a word's list has all places and runs that are known otherwise than from
// another word, and no place that is not known.
func (p *places) noted(list string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if list == p.same && list != "" {
		return true
	}
	more := maps.Clone(p.runs)
	for one := range strings.SplitSeq(list, ",") {
		run, place, _ := strings.Cut(one, "@")
		if known, is := more[place]; !is || known != "" && known != told && known != run {
			return false
		}
		delete(more, place)
	}
	for _, run := range more {
		if run != hasLeft && run != told {
			return false
		}
	}
	p.same = list
	return true
}

// others is how many places besides the server's own have to confirm a write.
func (p *places) others() (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for place, run := range p.runs {
		if place != p.own && run != hasLeft {
			n++
		}
	}
	return n
}

// confirmed returns how many of the other places have the history up to an offset, by the lines of
// INFO, and which do not. Two links from one place, both in step, are of two servers: then nobody
// can tell which one has it.
func (p *places) confirmed(links []link, offset int64) (n int, missing []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for place, run := range p.runs {
		if place == p.own || run == hasLeft {
			continue
		}
		lines, inStep, has := 0, 0, false
		for _, one := range links {
			if one.place != place {
				continue
			}
			if lines++; one.online {
				inStep, has = inStep+1, one.offset >= offset
			}
		}
		switch {
		case inStep == 1 && has:
			n++
		case lines == 0:
			missing = append(missing, place+", which is not attached")
		default:
			missing = append(missing, place)
		}
	}
	return n, missing
}

// placesOfCluster reads the places of a node's set from its CLUSTER NODES.
func placesOfCluster(ctx context.Context, node *redis.Client, _ string) (Places, error) {
	text, err := node.ClusterNodes(ctx).Result()
	if err != nil {
		return Places{}, err
	}
	return placesIn(text, node.Options().Addr), nil
}

// placesIn reads CLUSTER NODES. A node that does not know its own address is at the one that the
// caller has.
func placesIn(text, address string) Places {
	var lines [][]string // id, address, flags, master, ping, pong, epoch, link, slots
	var self string
	slots := map[string]bool{}
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) < 8 {
			continue
		}
		lines = append(lines, words)
		slots[words[0]] = len(words) > 8
		if strings.Contains(words[2], "myself") {
			self = words[0]
		}
	}
	found := Places{Own: address, Others: map[string]string{}}
	if own := slices.IndexFunc(lines, func(words []string) bool { return words[0] == self }); own >= 0 && slots[self] {
		first, _, _ := strings.Cut(lines[own][8], "-")
		found.Slot, _ = strconv.Atoi(first) // "[93->-node": it moves one, and has no other
	}
	for _, words := range lines {
		at, _, _ := strings.Cut(words[1], "@") // host:port@bus,name
		host, port, _ := cutLast(at, ":")
		place := net.JoinHostPort(host, port)
		switch id, master := words[0], words[3]; {
		case host == "" || port == "0":
		case id == self:
			found.Own = place
		case master == self:
			found.Others[place] = ""
		case slots[id], slots[master]:
			found.Moved = append(found.Moved, place)
		}
	}
	return found
}

// Staying returns the places of a server's set that are not gone: this server, the replicas that
// are attached, and those that are listed.
func (s *Engine) Staying(ctx context.Context, node *redis.Client) (attached, listed []string, err error) {
	info := askReplication(ctx)
	_ = node.Process(ctx, info)
	found, shown := readReplication(info)
	if !shown {
		return nil, nil, info.Err()
	}
	for _, one := range found.links {
		attached = append(attached, one.place)
	}
	if s.facts.list == nil {
		return attached, nil, nil
	}
	all, err := s.facts.list(ctx, node, "")
	if err != nil {
		return nil, nil, err
	}
	return append(attached, all.Own), slices.Sorted(maps.Keys(all.Others)), nil
}
