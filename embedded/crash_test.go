package embedded

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/logtest"
)

// childDir names, for the child process of TestKillLosesNothingThatWasAnswered, the data directory;
// childBytes its CompactBytes.
const (
	childDir   = "COATCHECK_EMBEDDED_CHILD_DIR"
	childBytes = "COATCHECK_EMBEDDED_CHILD_COMPACT_BYTES"
)

// workers is how many connections count at once, in the child and elsewhere.
const workers = 8

// pair counts, keeps the count a second time in a hash, and in a third place a record of each count
// that only grows.
const pair = `local n = redis.call('INCR', KEYS[1]) redis.call('HSET', KEYS[2], 'n', n) redis.call('ZADD', KEYS[3], n, n) return n`

// countForEver is the child: it prints every count that it was answered, until it is killed.
func countForEver(dir string) {
	compactBytes, _ := strconv.ParseInt(os.Getenv(childBytes), 10, 64)
	s, err := Open(Config{Dir: dir, CompactBytes: compactBytes})
	if err != nil {
		fmt.Println(err)
		return
	}
	c := dialer(s)
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for {
				n, err := c.Eval(context.Background(), pair, []string{"count", "copy", "record"}).Int()
				if err != nil {
					fmt.Println(err)
					return
				}
				fmt.Println(n)
			}
		})
	}
	all.Wait()
}

func TestKillLosesNothingThatWasAnswered(t *testing.T) {
	for name, compactBytes := range map[string]string{"with one log": "0", "while it compacts": "1"} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			before := ""
			for range 3 {
				answered := killAfter(t, dir, compactBytes, 300)
				s := open(t, Config{Dir: dir})
				c := client(t, s)
				kept, _ := strconv.Atoi(do(t, c, "GET", "count"))
				if most := slices.Max(answered); kept < most || kept > most+workers {
					t.Errorf("answered up to %d, kept %d", most, kept)
				}
				want(t, c, strconv.Itoa(kept), "HGET", "copy", "n")
				for _, n := range answered {
					want(t, c, strconv.Itoa(n), "ZSCORE", "record", n)
				}
				want(t, c, strconv.Itoa(kept), "ZCARD", "record")
				if !s.CleanStart() || before != "" && s.Incarnation() != before {
					t.Errorf("after kill -9: got clean %v and incarnation %s, want true and %s", s.CleanStart(), s.Incarnation(), before)
				}
				before = s.Incarnation()
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// killAfter runs the child until it has printed some counts, kills it, and returns all that it
// printed.
func killAfter(t *testing.T, dir, compactBytes string, lines int) (answered []int) {
	t.Helper()
	child := exec.CommandContext(t.Context(), os.Args[0])
	child.Env = append(os.Environ(), childDir+"="+dir, childBytes+"="+compactBytes)
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	for in := bufio.NewScanner(out); in.Scan(); {
		n, err := strconv.Atoi(in.Text())
		if err != nil {
			t.Errorf("the child says %q", in.Text())
			break
		}
		if answered = append(answered, n); len(answered) == lines {
			child.Process.Kill()
		}
	}
	if err := child.Wait(); err == nil || len(answered) < lines {
		t.Fatalf("the child ended by itself: %v", err)
	}
	return answered
}

// leave makes a copy of a data directory as a crash would leave it.
func leave(t *testing.T, dir string) string {
	t.Helper()
	copied := t.TempDir()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		text, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		if err != nil {
			t.Fatal(err)
		}
		writeFile(t, filepath.Join(copied, entry.Name()), text)
	}
	return copied
}

func writeFile(t *testing.T, path string, text []byte) {
	t.Helper()
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// headSize is how many bytes the head of a log has.
var headSize = len(logHeadOf(zeroSecret))

// crashed gives a data directory whose log has some groups, and the log's path.
func crashed(t *testing.T) (dir, log string) {
	t.Helper()
	s := open(t, Config{Dir: t.TempDir()})
	c := client(t, s)
	for i := range 5 {
		do(t, c, "MSET", "a", fmt.Sprint("a", i), "b", fmt.Sprint("b", i))
	}
	dir = leave(t, s.journal.dir.path)
	return dir, filepath.Join(dir, logName(s.journal.number))
}

func TestATornEndOfTheLastLogIsDropped(t *testing.T) {
	dir, log := crashed(t)
	whole, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	size := (len(whole) - headSize) / 5 // the groups are of equal size
	lastGroup := headSize + 4*size
	for _, cut := range []int{1, 2, 20, size - 1} {
		for _, zeros := range []int{0, 5000} {
			torn := append(slices.Clone(whole[:len(whole)-cut]), make([]byte, zeros)...)
			dir := leave(t, dir)
			writeFile(t, filepath.Join(dir, filepath.Base(log)), torn)
			var logged logtest.Text
			s := open(t, Config{Dir: dir, Logger: logged.Logger()})
			c := client(t, s)
			want(t, c, "a3", "GET", "a")
			want(t, c, "b3", "GET", "b")
			if text := logged.String(); !strings.Contains(text, fmt.Sprintf("offset=%d", lastGroup)) {
				t.Errorf("cut %d: logged %s", cut, text)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestDamageIsRefusedWithItsPlace(t *testing.T) {
	dir, log := crashed(t)
	whole, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	size := (len(whole) - headSize) / 5 // of a group
	begin := headSize + size            // of the second
	second := slices.Clone(whole)
	second[begin+30] ^= 1
	last := slices.Clone(whole)
	last[len(whole)-30] ^= 1
	longer := slices.Concat(whole[:begin], bytes.Replace(whole[begin:], []byte("$1\r\n"), []byte("$99999\r\n"), 1))
	snapshot, err := os.ReadFile(filepath.Join(dir, snapshotName))
	if err != nil {
		t.Fatal(err)
	}
	foreign := appendCommand(nil, "INCR", "n")
	for name, damage := range map[string]struct {
		file, text, says string
	}{
		"a bit in the middle of a log":       {filepath.Base(log), string(second), fmt.Sprintf("%s, in the group at byte %d", filepath.Base(log), begin)},
		"a bit in the last group":            {filepath.Base(log), string(last), fmt.Sprintf("byte %d", headSize+4*size)},
		"a length in the middle":             {filepath.Base(log), string(longer), fmt.Sprintf("byte %d", begin)},
		"something else after it":            {filepath.Base(log), string(whole) + "hello", fmt.Sprintf("byte %d", len(whole))},
		"another command":                    {filepath.Base(log), string(appendSeal(foreign, "", foreign)), `"INCR" has no place in it`},
		"a torn log that is not the last":    {filepath.Base(log), string(whole[:len(whole)-1]), fmt.Sprintf("byte %d", headSize+4*size)},
		"a snapshot without its end":         {snapshotName, string(snapshot[:len(snapshot)-1]), snapshotName + ", in the group at byte 0"},
		"a snapshot with something after it": {snapshotName, string(snapshot) + "\n", "follows its end"},
		"a snapshot that is empty":           {snapshotName, "", snapshotName},
		"a state that is empty":              {stateName, "", stateName},
		"a state without its fields":         {stateName, `{"format":1}`, "a field is missing"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := leave(t, dir)
			if strings.Contains(name, "not the last") {
				writeFile(t, filepath.Join(dir, logName(100)), whole)
			}
			writeFile(t, filepath.Join(dir, damage.file), []byte(damage.text))
			_, err := Open(Config{Dir: dir})
			if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), damage.says) || !strings.Contains(err.Error(), "backup") {
				t.Errorf("got %v, want %q", err, damage.says)
			}
		})
	}
}

func TestAMissingSnapshotIsNoticed(t *testing.T) {
	dir, _ := crashed(t)
	if err := os.Remove(filepath.Join(dir, snapshotName)); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(Config{Dir: dir}); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "snapshot.resp is missing") {
		t.Fatalf("got %v", err)
	}
}

func TestANewerFormatIsRefused(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, stateName), []byte(`{"format":3}`))
	if _, err := Open(Config{Dir: dir}); err == nil || errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "format 3") {
		t.Fatalf("got %v", err)
	}
}

func TestASecondOpenerIsRefused(t *testing.T) {
	dir := t.TempDir()
	s := open(t, Config{Dir: dir})
	if _, err := Open(Config{Dir: dir}); !errors.Is(err, ErrInUse) {
		t.Fatalf("got %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	open(t, Config{Dir: dir})
}

// A process that is being started has a copy of every open file until it is the other program. It
// must not hold the directory.
func TestADirectoryIsFreeWhenItsStoreIsClosedDespiteCopiesOfTheFile(t *testing.T) {
	dir := t.TempDir()
	s := open(t, Config{Dir: dir})
	copied, err := syscall.Dup(int(s.journal.dir.lock.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Close(copied) }() // it is a copy
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	open(t, Config{Dir: dir})
}

func TestAClockThatWentBackIsLogged(t *testing.T) {
	dir := t.TempDir()
	s := open(t, Config{Dir: dir})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	later := fmt.Sprintf(`{"format":1,"incarnation":%q,"clean":true,"last":%q}`, s.Incarnation(), time.Now().Add(time.Hour).Format(time.RFC3339))
	writeFile(t, filepath.Join(dir, stateName), []byte(later))
	var logged logtest.Text
	again := open(t, Config{Dir: dir, Logger: logged.Logger()})
	if again.Incarnation() != s.Incarnation() || !strings.Contains(logged.String(), "the clock stands before") {
		t.Fatalf("logged %s", logged.String())
	}
}

func TestOnlyCountersJump(t *testing.T) {
	s := open(t, Config{Dir: t.TempDir()})
	c := client(t, s)
	for key, value := range map[string]string{
		"count": "7", "negative": "-2000", "near the end": "9223372036854774807", "at the end": "9223372036854775807", "padded": "007", "text": "7a",
	} {
		do(t, c, "SET", key, value)
	}
	do(t, c, "SET", "brief", 7, "EX", 100)
	do(t, c, "HSET", "hash", "n", 7)
	after := client(t, open(t, Config{Dir: leave(t, s.journal.dir.path)}))
	for key, value := range map[string]string{
		"count": "1007", "negative": "-1000", "near the end": "9223372036854775807", "at the end": "9223372036854775807", "padded": "007", "text": "7a",
		"brief": "7",
	} {
		want(t, after, value, "GET", key)
	}
	want(t, after, "7", "HGET", "hash", "n")
}
