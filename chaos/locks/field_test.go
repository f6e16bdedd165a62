//go:build check

package locks

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/chaos/evidence"
	"github.com/coatcheck/coatcheck/chaos/internal/chaostest"
	"github.com/coatcheck/coatcheck/chaos/internal/locking"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
)

// field is a Redis and the processes that take locks there.
type field struct {
	*chaostest.Field

	watch      *chaostest.Sentinels
	scenes     int
	void       []string                // scenes in which Sentinel did something by itself
	voidFaults int                     // faults that struck in such scenes only
	kinds      map[string]string       // what was broken, by scene
	waited     map[string]int          // processes of a peer that waited for good, by scene
	struck     map[string][2]time.Time // when it was, and when it was mended
}

// newField starts a Redis with two replicas, of which that many have to confirm writes. The
// processes that Fill starts play a role, of chaos/peers if that is the program.
func newField(t *testing.T, program, role string, ack int) *field {
	t.Helper()
	redis := redistest.StartSentinel(t, 2)
	f := &field{Field: chaostest.NewField(t, role, redis.URL(), ack), struck: map[string][2]time.Time{}, kinds: map[string]string{}, waited: map[string]int{}}
	f.Redis, f.Program, f.watch = redis, program, chaostest.WatchSentinels(t, redis, time.Second/2)
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

// beside starts processes behind a link to the master, and returns how to cut it: nothing that is
// sent comes through until it is mended, which returns when all are served again. If the sentinels
// of a busy machine name another master meanwhile, what is behind the link is not. It ends them.
func (f *field) beside(n int) (cut, mend, end func()) {
	master := f.Redis.Master()
	served := func() { f.WaitUnless(func() bool { return f.Redis.Master() != master }) }
	link := chaostest.NewLink(f.T, master)
	near := len(f.Processes)
	for range n {
		f.Processes = append(f.Processes, f.Start(link.URL()))
	}
	served()
	cut = func() { link.Cut(redistest.Swallow) }
	mend = func() { link.Mend(); served() }
	end = func() {
		f.End(f.Processes[near:]...) // one that was replaced has its place
		f.Processes = f.Processes[:near]
	}
	return cut, mend, end
}
