//go:build check

package locks

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coatcheck/coatcheck/chaos/evidence"
	"github.com/coatcheck/coatcheck/chaos/internal/chaostest"
	"github.com/coatcheck/coatcheck/chaos/internal/locking"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
)

// field is a Redis and the processes that take locks there.
type field struct {
	*chaostest.Field

	scenes  int
	void    []string                // scenes in which Sentinel did something by itself
	untold  int                     // faults that struck in such scenes only
	silence time.Duration           // after which sentinels fail over; 0 = a set's default
	kinds   map[string]string       // what was broken, by scene
	waited  map[string]int          // processes of a peer that waited for good, by scene
	struck  map[string][2]time.Time // when it was, and when it was mended
}

// newField starts a Redis with two replicas, of which that many have to confirm writes. The
// processes that Fill starts play a role, of chaos/peers if that is the program.
func newField(t *testing.T, program, role string, ack int) *field {
	t.Helper()
	redis := redistest.StartSentinel(t, 2)
	f := &field{Field: chaostest.NewField(t, role, redis.URL(), ack), struck: map[string][2]time.Time{}, kinds: map[string]string{}, waited: map[string]int{}}
	f.Redis, f.Program = redis, program
	if whoTheyAre[role] != evidence.Ours {
		f.Patience = patience
	}
	f.scene()
	return f
}

// scene has all processes use other names from now on, so that histories stay short.
func (f *field) scene() {
	f.T.Helper()
	f.scenes++
	name := filepath.Join(f.Folder, locking.SceneFile)
	expect.NoError(f.T, "os.WriteFile", os.WriteFile(name+".new", []byte(strconv.Itoa(f.scenes)), 0o600))
	expect.NoError(f.T, "os.Rename", os.Rename(name+".new", name))
}

// patience is how long a peer's processes have for another grant.
const patience = 8 * ttl

// holds reports whether the last thing that a process has written is that it holds something.
func holds(p *chaostest.Member) bool {
	text, err := os.ReadFile(locking.JournalFile(p.File))
	if err != nil {
		return false
	}
	text = bytes.TrimSuffix(text, []byte("\n"))
	return bytes.HasPrefix(text[bytes.LastIndexByte(text, '\n')+1:], []byte("still"))
}

// holder is a process that holds something, or did a moment ago; any, if it is a peer's and all of
// them wait for good.
func (f *field) holder() *chaostest.Member {
	var found *chaostest.Member
	start := time.Now()
	chaostest.Await(f.T, time.Minute, func() string {
		for _, i := range f.Lot.Perm(len(f.Processes)) {
			if found = f.Processes[i]; holds(found) {
				return ""
			}
		}
		if f.Patience > 0 && time.Since(start) > f.Patience {
			return ""
		}
		return "no lock is held"
	})
	return found
}

// epoch counts the failovers that the sentinels have made.
func (f *field) epoch() int {
	f.T.Helper()
	client := f.sentinel()
	defer client.Close()
	epoch := 0
	chaostest.Await(f.T, time.Minute, func() string {
		master, err := client.Master(f.T.Context(), masterName).Result()
		if err == nil {
			epoch, err = strconv.Atoi(master["config-epoch"])
		}
		if err != nil {
			return err.Error()
		}
		return ""
	})
	return epoch
}

// hesitate has the sentinels wait for twice as long before they hold a master for dead: they have
// replaced one that is alive.
func (f *field) hesitate() {
	f.T.Helper()
	f.silence = min(2*max(f.silence, time.Second/2), 8*time.Second)
	for _, server := range f.Redis.Sentinels() {
		chaostest.Do(f.T, server, "SENTINEL", "SET", masterName, "down-after-milliseconds", f.silence.Milliseconds())
	}
}

// masterName is what the sentinels call the master.
const masterName = "coatcheck"

// sentinel is a client of one of the sentinels.
func (f *field) sentinel() *redis.SentinelClient {
	address, _, _ := strings.Cut(strings.TrimPrefix(f.Redis.URL(), "redis+sentinel://"), ",")
	return redis.NewSentinelClient(&redis.Options{Addr: address})
}

// beside starts processes behind a link to the master, and returns how to cut it: nothing that is
// sent comes through until it is mended, which returns when all are served again. If the sentinels
// of a busy machine name another master meanwhile, what is behind the link is not. It ends them.
func (f *field) beside(n int) (cut, mend, end func()) {
	var gone atomic.Bool
	master := f.Redis.Master()
	served := func() { f.WaitUnless(func() bool { return f.Redis.Master() != master }) }
	proxy := redistest.StartProxy(f.T, master.Addr(), func([]byte) (redistest.Fate, func()) {
		if gone.Load() {
			return redistest.Swallow, nil
		}
		return redistest.Pass, nil
	})
	near := len(f.Processes)
	for range n {
		f.Processes = append(f.Processes, f.Start(proxy.URL()))
	}
	served()
	cut = func() { gone.Store(true); proxy.SetDeaf(true) }
	mend = func() { gone.Store(false); proxy.SetDeaf(false); served() }
	end = func() {
		f.End(f.Processes[near:]...) // one that was replaced has its place
		f.Processes = f.Processes[:near]
	}
	return cut, mend, end
}
