//go:build check

package locks

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
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
	*chaostest.Field[*process]

	role    string
	program string // of chaos/peers, or ""
	ack     int
	scenes  int
	void    []string                // scenes in which Sentinel did something by itself
	untold  int                     // faults that struck in such scenes only
	silence time.Duration           // after which sentinels fail over; 0 = a set's default
	kinds   map[string]string       // what was broken, by scene
	waited  map[string]int          // processes of a peer that waited for good, by scene
	struck  map[string][2]time.Time // when it was, and when it was mended
}

// process is one of them.
type process struct {
	*chaostest.Process

	number int
	folder string
}

func (p *process) String() string { return strconv.Itoa(p.number) }

// Progress is how many grants the process has had.
func (p *process) Progress() int64 {
	return chaostest.Size(locking.JournalFile(p.folder, p.number) + ".grants")
}

// newField starts a Redis with two replicas, and processes in a role, whose writes that many
// replicas have to confirm.
func newField(t *testing.T, role string, ack int) *field { return newFieldOf(t, "", role, ack) }

// newFieldOf is the same with the processes of a program.
func newFieldOf(t *testing.T, program, role string, ack int) *field {
	t.Helper()
	f := openField(t, program, role, ack)
	f.Fill(*processes)
	return f
}

// openField is a field without processes.
func openField(t *testing.T, program, role string, ack int) *field {
	t.Helper()
	f := &field{program: program, role: role, ack: ack, struck: map[string][2]time.Time{}, kinds: map[string]string{}, waited: map[string]int{}}
	f.Field = chaostest.NewField(t, func(number int) *process { return f.start(f.Redis.URL(), number) })
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

// start starts a process that finds Redis at a URL.
func (f *field) start(url string, number int) *process {
	if f.program != "" {
		return startPeer(f.T, f.program, f.role, url, f.Folder, number)
	}
	return startProcess(f.T, f.role, url, f.Folder, number, f.ack)
}

// startPeer starts a process of chaos/peers.
func startPeer(t testing.TB, program, peer, url, folder string, number int) *process {
	command := exec.CommandContext(context.Background(), program, peer)
	command.Env = append(os.Environ(), redisVariable+"="+url, folderVariable+"="+folder, fmt.Sprintf("%s=%d", numberVariable, number))
	command.Stderr = os.Stderr
	return &process{chaostest.Start(t, command), number, folder}
}

func startProcess(t testing.TB, role, url, folder string, number, ack int) *process {
	t.Helper()
	return &process{chaostest.StartRole(t, roleVariable+"="+role, redisVariable+"="+url, folderVariable+"="+folder,
		fmt.Sprintf("%s=%d", numberVariable, number), fmt.Sprintf("%s=%d", ackVariable, ack)), number, folder}
}

// patience is how long a peer's processes have for another grant.
const patience = 8 * ttl

// holds reports whether the last thing that the process has written is that it holds something.
func (p *process) holds() bool {
	text, err := os.ReadFile(locking.JournalFile(p.folder, p.number))
	if err != nil {
		return false
	}
	text = bytes.TrimSuffix(text, []byte("\n"))
	return bytes.HasPrefix(text[bytes.LastIndexByte(text, '\n')+1:], []byte("still"))
}

// holder is a process that holds something, or did a moment ago; any, if it is a peer's and all of
// them wait for good.
func (f *field) holder() *process {
	var found *process
	start := time.Now()
	chaostest.Await(f.T, time.Minute, func() string {
		for _, i := range f.Lot.Perm(len(f.Processes)) {
			if found = f.Processes[i]; found.holds() {
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
		f.Processes = append(f.Processes, f.start(proxy.URL(), f.Number()))
	}
	served()
	cut = func() { gone.Store(true); proxy.SetDeaf(true) }
	mend = func() { gone.Store(false); proxy.SetDeaf(false); served() }
	end = func() {
		for _, p := range f.Processes[near:] { // one that was replaced has its place
			f.End(p)
		}
		f.Processes = f.Processes[:near]
	}
	return cut, mend, end
}
