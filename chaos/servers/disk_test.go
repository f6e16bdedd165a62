//go:build check && linux

package servers

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/coatcheck/coatcheck/chaos/internal/chaostest"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
)

// folder is where a server keeps its data.
func folder(t *testing.T, server *redistest.Server) string {
	t.Helper()
	return server.Client().ConfigGet(t.Context(), "dir").Val()["dir"]
}

// A server that starts again with the files of a while ago, as after a restore or from a disk that
// was cloned.
func TestServerThatStartsWithOlderFiles(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--appendonly", "yes")
	one, other := startService(t, server.URL()), startService(t, server.URL())
	l := startLoad(t, one, other)
	files := folder(t, server)
	older := filepath.Join(t.TempDir(), "older")
	expect.NoError(t, "os.CopyFS", os.CopyFS(older, os.DirFS(files)))
	copied := time.Now()
	for range 3 {
		l.goesOn()
	}
	server.Kill()
	expect.NoError(t, "os.RemoveAll", os.RemoveAll(files))
	expect.NoError(t, "os.Rename", os.Rename(older, files))
	server.Restart()
	l.goesOn()
	l.check(exceptions{
		lossy:     true,
		runsAgain: func(one *token) bool { return one.asked.Before(copied) },
	}, one)
}

// A disk without room, under an append-only file. With everysec the server stays and refuses what
// writes; with always it ends, as an answer that it cannot keep must not be given.
func TestDiskIsFull(t *testing.T) {
	for _, fsync := range []string{"everysec", "always"} {
		t.Run(fsync, func(t *testing.T) {
			server := startWith(t, "trap '' XFSZ", "--appendonly", "yes", "--appendfsync", fsync, "--auto-aof-rewrite-percentage", "0")
			one, other := startService(t, server.URL()), startService(t, server.URL())
			l := startLoad(t, one, other)
			files, err := filepath.Glob(filepath.Join(folder(t, server), "appendonlydir", "*.incr.aof"))
			if err != nil || len(files) != 1 {
				t.Fatalf("append-only files: %q, %v", files, err)
			}
			for range 2 {
				room := uint64(chaostest.Size(files[0])) + 4<<10
				limitFiles(t, server.Pid(), room)
				if fsync == "always" {
					chaostest.Await(t, time.Minute, func() string {
						if server.Pid() != 0 {
							return "the server still runs"
						}
						return ""
					})
				}
				for _, kind := range []string{"count", "lock", "issue"} {
					l.refusals(kind, 3)
				}
				if fsync == "always" {
					server.Restart()
				} else {
					limitFiles(t, server.Pid(), unix.RLIM_INFINITY)
				}
				l.goesOn()
			}
			l.check(exceptions{lossy: fsync == "always", connection: 30}, one)
		})
	}
}

// limitFiles has a process write no file that is larger.
func limitFiles(t *testing.T, pid int, size uint64) {
	t.Helper()
	expect.NoError(t, "unix.Prlimit", unix.Prlimit(pid, unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: size, Max: unix.RLIM_INFINITY}, nil))
}

// A server that is at its limit of memory, and evicts nothing. What is held is renewed all the
// while, so ids are stamped, and grants of worker ids outlast it.
func TestMemoryIsFull(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--maxmemory-policy", "noeviction")
	one, other := startService(t, server.URL()), startService(t, server.URL())
	l := startLoad(t, one, other)
	for range 2 {
		before := len(l.workers())
		info := server.Client().Info(t.Context(), "memory").Val()
		_, used, _ := strings.Cut(info, "\nused_memory:")
		used, _, _ = strings.Cut(used, "\r")
		chaostest.Do(t, server, "CONFIG", "SET", "maxmemory", used)
		chaostest.Await(t, time.Minute, func() string {
			for _, kind := range []string{"count", "lock", "issue"} {
				if l.refused(kind) == 0 {
					chaostest.Do(t, server, "CONFIG", "SET", "maxmemory", "1")
					return kind + " is not refused: " + l.String()
				}
			}
			return ""
		})
		time.Sleep(ttl + ttl/2) // longer than a lease
		chaostest.Do(t, server, "CONFIG", "SET", "maxmemory", "0")
		l.goesOn()
		if now := l.workers(); len(now) != before {
			t.Errorf("%d worker ids were used, and now %v: a holder lost its own while memory was full", before, now)
		}
	}
	l.check(exceptions{}, one)
}
