package embedded

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coatcheck/coatcheck/internal/expect"
)

// A start writes a snapshot, and then removes the logs that it stands for. If it is cut off in
// between, the next start must not take from those logs what has expired since.
func TestStartThatIsCutOffBringsNoExpiredRecordBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := open(t, Config{Dir: t.TempDir()})
		c := client(t, first)
		do(t, c, "EVAL", `redis.call('HSET', KEYS[1], 'state', 'issued', 'scope', 'pay')
			return redis.call('PEXPIRE', KEYS[1], 10000)`, 1, "token")
		expectNone(t, "compacting", first.journal.compact())
		// the log has this field, and the snapshot the rest
		do(t, c, "HSET", "token", "state", "claimed")
		dir := leave(t, first.journal.dir.path)
		time.Sleep(time.Minute)
		open(t, Config{Dir: dir}) // writes its snapshot, and removes the logs
		cut := leave(t, first.journal.dir.path)
		snapshot, err := os.ReadFile(filepath.Join(dir, snapshotName))
		expectNone(t, "reading the snapshot", err)
		// as if it had not come to removing them
		writeFile(t, filepath.Join(cut, snapshotName), snapshot)
		want(t, client(t, open(t, Config{Dir: cut})), "[]", "HGETALL", "token")
	})
}

func expectNone(t *testing.T, asked string, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: got error %v, want none", asked, err)
	}
}

func TestSnapshotThatFailsAtStartOrAtTheEndLeavesTheLogs(t *testing.T) {
	dir, _ := crashed(t)
	blocked := filepath.Join(dir, snapshotName+".new")
	expectNone(t, "making a directory in the way", os.Mkdir(blocked, 0o700))
	if _, err := Open(Config{Dir: dir}); err == nil {
		t.Error("opening where no snapshot can be written: got no error, want one")
	}
	expectNone(t, "removing it", os.Remove(blocked))
	s := open(t, Config{Dir: dir})
	want(t, client(t, s), "a4", "GET", "a")
	want(t, client(t, s), "OK", "SET", "c", "c0")
	expectNone(t, "making a directory in the way", os.Mkdir(blocked, 0o700))
	if err := s.Close(); err == nil {
		t.Error("closing where no snapshot can be written: got no error, want one")
	}
	expectNone(t, "removing it", os.Remove(blocked))
	want(t, client(t, open(t, Config{Dir: dir})), "c0", "GET", "c")
}

// A disk may write the sectors of one group in any order.
func TestTornGroupWithHolesIsDropped(t *testing.T) {
	s := open(t, Config{Dir: t.TempDir()})
	c := client(t, s)
	do(t, c, "SET", "a", "before")
	size, err := os.Stat(filepath.Join(s.journal.dir.path, logName(s.journal.number)))
	expectNone(t, "size of the log", err)
	do(t, c, "MSET", "a", strings.Repeat("x", 5000), "b", strings.Repeat("y", 5000))
	dir, name := leave(t, s.journal.dir.path), logName(s.journal.number)
	whole, err := os.ReadFile(filepath.Join(dir, name))
	expectNone(t, "reading the log", err)
	begin := int(size.Size())
	for _, hole := range [][2]int{{begin, 512}, {begin, 4096}, {begin, len(whole) / 512 * 512}, {1024, 2048}, {4096, 8192}} {
		for _, end := range []int{len(whole), len(whole) - 1, len(whole) - 20} {
			t.Run(fmt.Sprint("bytes ", hole, " of ", end), func(t *testing.T) {
				torn := slices.Clone(whole[:end])
				clear(torn[hole[0]:hole[1]])
				dir := leave(t, dir)
				writeFile(t, filepath.Join(dir, name), torn)
				c := client(t, open(t, Config{Dir: dir}))
				want(t, c, "before", "GET", "a")
				want(t, c, "<nil>", "GET", "b")
			})
		}
	}
}

// The text of a seal inside a value is no seal.
func TestTornGroupWithTheTextOfASealIsDropped(t *testing.T) {
	s := open(t, Config{Dir: t.TempDir()})
	c := client(t, s)
	do(t, c, "SET", "a", "before")
	one := appendCommand(nil, "SET", "a", "of a user")
	sealed := appendSeal(slices.Clone(one), "", one)
	do(t, c, "SET", "b", string(bytes.Repeat(sealed, 3)))
	dir, name := leave(t, s.journal.dir.path), logName(s.journal.number)
	whole, err := os.ReadFile(filepath.Join(dir, name))
	expectNone(t, "reading the log", err)
	writeFile(t, filepath.Join(dir, name), whole[:len(whole)-1])
	c = client(t, open(t, Config{Dir: dir}))
	want(t, c, "before", "GET", "a")
	want(t, c, "<nil>", "GET", "b")
}

// Keys that expire while a directory is opened are looked at by the clock's timer. The race
// detector sees it if that comes before the journal is there.
func TestKeyMayExpireWhileTheDirectoryIsOpened(t *testing.T) {
	s := open(t, Config{Dir: t.TempDir()})
	c := client(t, s)
	for i := range 50 {
		do(t, c, "SET", fmt.Sprint("key", i), "v", "PX", 100+5*i)
	}
	var all sync.WaitGroup
	for range 30 {
		dir := leave(t, s.journal.dir.path)
		all.Go(func() {
			opened, err := Open(Config{Dir: dir})
			if err == nil {
				err = opened.Close()
			}
			if err != nil {
				t.Errorf("opening a directory whose keys expire: got error %v, want none", err)
			}
		})
	}
	all.Wait()
}

// A pipeline may get more answers than should stay unread: its client writes all of it before it
// reads.
func TestPipelineOfManyLargeRepliesIsAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const large, replies = 4 << 20, maxUnread/(4<<20) + 2
		s := open(t, Config{})
		do(t, client(t, s), "SET", "large", strings.Repeat("x", large))
		conn, err := s.Dial(t.Context())
		expectNone(t, "dialing", err)
		defer conn.Close()
		for range replies {
			_, err := conn.Write(appendCommand(nil, "GET", "large"))
			expectNone(t, "sending one more GET while nothing is read", err)
		}
		synctest.Wait()
		want := replies * int64(len(appendHead(nil, '$', large))+large+2)
		read, err := io.CopyN(io.Discard, conn, want)
		if err != nil {
			t.Fatalf("%d replies of 4 MiB: got %d bytes and error %v, want %d bytes", replies, read, err, want)
		}
	})
}

// A directory of format 1 has no heads in its logs, and no number in its snapshot.
func TestDirectoryOfFormat1IsRead(t *testing.T) {
	dir := t.TempDir()
	one := appendCommand(nil, "SET", "a", "a1")
	two := appendCommand(nil, "HSET", "h", "f", "v")
	sealed := func(group []byte) []byte { return appendSeal(slices.Clone(group), "", group) }
	end := appendCommand(nil, sealCommand, "coatcheck end 00000000")
	writeFile(t, filepath.Join(dir, snapshotName), slices.Concat(sealed(one), end))
	writeFile(t, filepath.Join(dir, logName(3)), slices.Concat(sealed(two), sealed(one)[:20]))
	writeFile(t, filepath.Join(dir, stateName), []byte(`{"format":1,"incarnation":"`+newIncarnation()+`","clean":false}`))
	c := client(t, open(t, Config{Dir: dir}))
	want(t, c, "a1", "GET", "a")
	want(t, c, "[f v]", "HGETALL", "h")
}

// A directory whose process was killed is complete only where it is, and until the machine is
// restarted.
func TestAKilledProcessLosesNothingUntilTheMachineIsRestarted(t *testing.T) {
	begin := func(t *testing.T) (dir string, life string) {
		t.Helper()
		s := open(t, Config{Dir: t.TempDir()})
		do(t, client(t, s), "SET", "n", 7)
		s.journal.dir.unlock() // as the end of the process would
		return s.journal.dir.path, s.Incarnation()
	}
	edited := func(t *testing.T, dir, from, to string) {
		t.Helper()
		file := filepath.Join(dir, stateName)
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatalf("reading the state: %v", err)
		}
		if !strings.Contains(string(text), from) {
			t.Fatalf("%s has no %q", text, from)
		}
		// it stays the same file
		writeFile(t, file, []byte(strings.Replace(string(text), from, to, 1)))
	}
	for _, row := range []struct {
		name  string
		then  func(t *testing.T, dir string) string
		whole bool
	}{
		{"nothing", func(_ *testing.T, dir string) string { return dir }, true},
		{"the machine is restarted", func(t *testing.T, dir string) string {
			t.Helper()
			edited(t, dir, bootID(), "another")
			return dir
		}, false},
		{"a copy", leave, false},
		{"a state of an older version", func(t *testing.T, dir string) string {
			t.Helper()
			edited(t, dir, `"boot":"`+bootID()+`"`, `"boot":""`)
			return dir
		}, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			if bootID() == "" {
				row.whole = false // this system does not tell
			}
			dir, life := begin(t)
			again := open(t, Config{Dir: row.then(t, dir)})
			expect.Equal(t, "a clean start", again.CleanStart(), row.whole)
			expect.Equal(t, "the same incarnation", again.Incarnation() == life, row.whole)
			kept := 7
			if !row.whole {
				kept += CounterJump
			}
			want(t, client(t, again), strconv.Itoa(kept), "GET", "n")
		})
	}
}
