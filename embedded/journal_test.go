package embedded

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coatcheck/coatcheck/internal/expect"
	"github.com/coatcheck/coatcheck/internal/logtest"
	"github.com/coatcheck/coatcheck/internal/redistest"
)

// dump returns everything that a store holds: value and expiry of every key.
func dump(t testing.TB, s *Store) map[string]string {
	t.Helper()
	s.exec.Lock()
	defer s.exec.Unlock()
	s.expireLocked()
	all := map[string]string{}
	for _, key := range s.redis.Keys() {
		var value any
		switch kind := s.redis.Type(key); kind {
		case "string":
			value, _ = s.redis.Get(key)
		case "hash":
			value = s.fieldsLocked(key)
		case "set":
			value, _ = s.redis.Members(key)
		case "zset":
			scores, _ := s.redis.SortedSet(key)
			value = fmt.Sprint(scores)
		case "list":
			value, _ = s.redis.List(key)
		default:
			t.Fatalf("%s is a %s", key, kind)
		}
		all[key] = fmt.Sprintf("%q", value)
		if at := s.redis.TTL(key); at > 0 {
			all[key] += " until " + time.Now().Add(at-s.clock.now()).Round(10*time.Millisecond).Format(time.RFC3339Nano)
		}
	}
	return all
}

func differ(got, want map[string]string) (report []string) {
	for key := range want {
		if got[key] != want[key] {
			report = append(report, fmt.Sprintf("%q: got %.300s, want %.300s", key, got[key], want[key]))
		}
	}
	for key := range got {
		if _, ok := want[key]; !ok {
			report = append(report, fmt.Sprintf("%q: got %s, want nothing", key, got[key]))
		}
	}
	return report
}

func TestEveryTypeComesBack(t *testing.T) {
	for name, clean := range map[string]bool{"after a clean stop": true, "after a crash": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { everyTypeComesBack(t, clean) })
		})
	}
}

func everyTypeComesBack(t *testing.T, clean bool) {
	dir := t.TempDir()
	s := open(t, Config{Dir: dir})
	c := client(t, s)
	odd := "\x00\r\n*1\r\n$4\r\n\xff\xfe"
	lives := []string{"", "brief", "long"}
	for _, life := range lives {
		do(t, c, "SET", life+"string"+odd, odd)
		do(t, c, "SET", life+"empty", "")
		do(t, c, "HSET", life+"hash", odd, odd, "", "", "f", "v")
		do(t, c, "SADD", life+"set", odd, "", "m")
		do(t, c, "ZADD", life+"zset", "+inf", odd, "-inf", "", "0.1", "m", "1e300", "n", "9007199254740993", "o")
		do(t, c, "RPUSH", life+"list", odd, "", "v", "v")
		many := []any{"HSET", life + "large"}
		for i := range 3 * imageWords {
			many = append(many, fmt.Sprint("f", i), i)
		}
		do(t, c, many...)
	}
	for _, key := range s.redis.Keys() {
		switch {
		case strings.HasPrefix(key, "brief"):
			do(t, c, "PEXPIRE", key, 5000)
		case strings.HasPrefix(key, "long"):
			do(t, c, "PEXPIRE", key, 3_600_000)
		}
	}
	held := dump(t, s)
	if clean {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	} else {
		dir = leave(t, dir)
	}

	again := open(t, Config{Dir: dir})
	if again.CleanStart() != clean || (again.Incarnation() == s.Incarnation()) != clean {
		t.Errorf("clean %v, incarnation %s after %s", again.CleanStart(), again.Incarnation(), s.Incarnation())
	}
	if report := differ(dump(t, again), held); len(report) > 0 {
		t.Error(report)
	}
	time.Sleep(2 * time.Second) // while it is up
	if err := again.Close(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(3 * time.Second) // while it is down: the brief ones go
	again = open(t, Config{Dir: dir})
	left := dump(t, again)
	if len(left) != len(held)*2/3 || left["brieflist"] != "" || left["longlist"] != held["longlist"] {
		t.Errorf("%d of %d keys are left", len(left), len(held))
	}
}

func TestTheDirectoryIsPrivate(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "data")
	s := open(t, Config{Dir: dir})
	do(t, client(t, s), "SET", "k", "v")
	for _, path := range []string{dir, filepath.Join(dir, snapshotName), filepath.Join(dir, logName(1)), filepath.Join(dir, stateName), filepath.Join(dir, lockName)} {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has the mode %v, want one that is nothing to others", path, info.Mode())
		}
	}
}

// histories is how many seeds of random commands are tried. TestManyMoreHistories goes on from
// there.
const histories = 3

// A history of random commands, at any point of which a crash must leave what the memory holds,
// also between the steps of a compaction.
func TestTheFilesHoldWhatTheMemoryHolds(t *testing.T) {
	for seed := range uint64(histories) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) { history(t, seed) })
	}
}

func history(t *testing.T, seed uint64) {
	synctest.Test(t, func(t *testing.T) { randomHistory(t, rand.New(rand.NewPCG(seed, 1))) })
}

func randomHistory(t *testing.T, random *rand.Rand) {
	dir := t.TempDir()
	s := open(t, Config{Dir: dir})
	c := client(t, s)
	var compaction []func() error // the steps that are left
	next := func() error {
		if len(compaction) == 0 {
			last := 0
			compaction = []func() error{
				func() (err error) { last, err = s.journal.rotate(); return err },
				func() error { return s.journal.snapshot(last) },
				func() error { return s.journal.dir.removeLogs(last) },
			}
		}
		step := compaction[0]
		compaction = compaction[1:]
		return step()
	}
	for range 50 {
		pipe := c.Pipeline() // so that one flush covers several commands
		for range random.IntN(12) {
			pipe.Do(t.Context(), randomCommand(random)...)
		}
		pipe.Exec(t.Context()) // many fail, with WRONGTYPE
		var err error
		switch random.IntN(10) {
		case 0, 1:
			time.Sleep(time.Duration(random.IntN(3000)) * time.Millisecond)
		case 2, 3, 4, 5:
			err = next()
		case 6:
			err = errors.Join(c.Close(), s.Close())
			s = open(t, Config{Dir: dir})
			c, compaction = client(t, s), nil
		}
		if err != nil {
			t.Fatal(err)
		}
		held := dump(t, s)
		after := open(t, Config{Dir: leave(t, dir)})
		if report := differ(dump(t, after), held); len(report) > 0 {
			t.Fatal(report)
		}
		if err := after.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// randomCommand changes one of a few keys. Values are no whole numbers, which would jump after a
// crash; nor do they become one by a fraction that is added again and again.
func randomCommand(random *rand.Rand) []any {
	key := func() string { return string(rune('a' + random.IntN(5))) }
	part := func() string { return string(rune('p' + random.IntN(4))) }
	k, p, n := key(), part(), 100+random.IntN(5000)
	commands := [][]any{
		{"SET", k, p}, {"SET", k, p, "PX", n}, {"SET", k, p, "KEEPTTL"}, {"SET", k, p, "NX"}, {"APPEND", k, p}, {"GETDEL", k}, {"INCRBYFLOAT", k, "0.0009765625"},
		{"MSET", k, p, key(), p}, {"GETEX", k, "PX", n}, {"SETRANGE", k, 3, p}, {"DEL", k, key()}, {"UNLINK", k}, {"RENAME", k, key()}, {"RENAMENX", k, key()},
		{"PEXPIRE", k, n}, {"PEXPIRE", k, n}, {"PEXPIRE", k, n, "GT"}, {"PERSIST", k}, {"PEXPIRE", k, -1},
		{"HSET", k, p, n, part(), p}, {"HSET", k, p, n}, {"HDEL", k, p, part()}, {"HINCRBY", k, p, n}, {"HSETNX", k, p, "nx"},
		{"RPUSH", k, p, part()}, {"LPUSH", k, p}, {"LPOP", k}, {"RPOP", k}, {"LREM", k, 1, p}, {"RPOPLPUSH", k, key()}, {"LTRIM", k, 0, 2},
		{"SADD", k, p, part()}, {"SREM", k, p, part()}, {"SPOP", k}, {"SMOVE", k, key(), p},
		{"ZADD", k, n, p, n + 1, part()}, {"ZADD", k, "GT", "CH", n, p}, {"ZADD", k, "NX", n, p}, {"ZINCRBY", k, "0.25", p}, {"ZREM", k, p, part()},
		{"ZPOPMIN", k}, {"ZREMRANGEBYRANK", k, 0, 0}, {"ZADD", k, "INCR", n, p},
		{"EVAL", `redis.call('DEL', KEYS[1]) redis.call('HSET', KEYS[1], ARGV[1], 1) redis.call('PEXPIRE', KEYS[1], ARGV[2]) return redis.call('GET', KEYS[2])`,
			2, k, key(), p, n},
	}
	if random.IntN(100) == 0 {
		return []any{"FLUSHALL"}
	}
	return commands[random.IntN(len(commands))]
}

// spy is a log that counts what the journal does, and can make it wait or fail.
type spy struct {
	logFile
	syncs  atomic.Int64
	gate   chan struct{} // Sync takes one from it, if it is there
	broken error
	short  bool // a write that fails leaves its first half
}

func (s *spy) Write(p []byte) (int, error) {
	if s.broken != nil && s.short {
		n, _ := s.logFile.Write(p[:len(p)/2])
		return n, s.broken
	}
	if s.broken != nil {
		return 0, s.broken
	}
	return s.logFile.Write(p)
}

func (s *spy) Sync() error {
	s.syncs.Add(1)
	if s.gate != nil {
		<-s.gate
	}
	return s.logFile.Sync()
}

// watch puts a spy in the place of a store's log. Nothing may be written meanwhile.
func watch(s *Store) *spy {
	s.journal.mu.Lock()
	defer s.journal.mu.Unlock()
	watcher := &spy{logFile: s.journal.log}
	s.journal.log = watcher
	return watcher
}

func TestOnlyRepliesWithSomethingNewCostAnFsync(t *testing.T) {
	s := open(t, Config{Dir: t.TempDir()})
	c := client(t, s)
	log := watch(s)
	do(t, c, "EVAL", pair, 3, "count", "copy", "record")
	do(t, c, "SET", "brief", "v", "PX", 100)
	written := log.syncs.Load()
	if written == 0 || written > 3 { // a partial reply may go ahead
		t.Errorf("two writes cost %d syncs", written)
	}
	for c.Exists(t.Context(), "brief").Val() == 1 {
		do(t, c, "GET", "count")
	}
	for range 100 {
		do(t, c, "HGETALL", "copy")
		do(t, c, "EVAL", `return redis.call('GET', KEYS[1])`, 1, "count")
	}
	expect.Equal(t, "the syncs that reads cost", log.syncs.Load()-written, 0)
}

// aMoment is how long the tests of waiting check that it goes on. It is never too short for code
// that is right.
const aMoment = 50 * time.Millisecond

func TestRepliesWaitForTheWritesTheyReport(t *testing.T) {
	s := open(t, Config{Dir: t.TempDir()})
	log := watch(s)
	log.gate = make(chan struct{})
	answers := make(chan string, 2+workers)
	// each on a connection of its own, without what go-redis says first
	ask := func(words ...string) {
		conn, err := s.Dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		go func() {
			if _, err := conn.Write(appendCommand(nil, words...)); err != nil {
				t.Error(err)
			}
			reply, err := bufio.NewReader(conn).ReadString('\n')
			answers <- fmt.Sprint(words[0], reply, err)
		}()
	}
	ask("SET", "k", "v")
	expect.Eventually(t, "the sync of the first write has begun", func() bool { return log.syncs.Load() == 1 })
	ask("GET", "k")
	for range workers {
		ask("INCR", "n")
	}
	expect.Eventually(t, "every client has counted", func() bool {
		n, _ := s.redis.Get("n")
		return n == strconv.Itoa(workers)
	})
	time.Sleep(aMoment)
	if len(answers) > 0 {
		t.Errorf("answered before the disk had it: %s", <-answers)
	}
	close(log.gate)
	for range 2 + workers {
		<-answers
	}
	if n := log.syncs.Load(); n != 2 {
		t.Errorf("one sync for the first write and one for all others are enough, and it took %d", n)
	}
}

func TestAMessageWaitsForTheScriptThatSendsIt(t *testing.T) {
	s := open(t, Config{Dir: t.TempDir()})
	c := client(t, s)
	news := c.Subscribe(t.Context(), "news")
	defer news.Close()
	if _, err := news.Receive(t.Context()); err != nil {
		t.Fatal(err)
	}
	log := watch(s)
	log.gate = make(chan struct{})
	release := sync.OnceFunc(func() { close(log.gate) })
	t.Cleanup(release)
	done := make(chan error, 1)
	go func() {
		// The loop is what a message has time for that does not wait.
		script := `redis.call('PUBLISH', 'news', '1') redis.call('PUBLISH', 'news', '2') for i = 1, 3e5 do end redis.call('SET', KEYS[1], 'v') return 1`
		done <- c.Eval(t.Context(), script, []string{"k"}).Err()
	}()
	expect.Eventually(t, "the script has run", func() bool { return s.redis.Exists("k") })
	if message, err := news.ReceiveTimeout(t.Context(), aMoment); err == nil {
		t.Fatalf("heard %v before the disk has what the script wrote", message)
	}
	release()
	for _, text := range []string{"1", "2"} {
		if message, err := news.ReceiveMessage(t.Context()); err != nil || message.Payload != text {
			t.Errorf("heard %v, %v, want %s", message, err, text)
		}
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestAStoreThatCannotWriteRefusesEverything(t *testing.T) {
	for name, short := range map[string]bool{"nothing is written": false, "half is written": true} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			var logged logtest.Text
			s := open(t, Config{Dir: dir, Logger: logged.Logger()})
			c := client(t, s)
			want(t, c, "1", "INCR", "n")
			idle, err := s.Dial(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			log := watch(s)
			log.broken, log.short = errors.New("no space left"), short
			if reply, err := c.Incr(t.Context(), "n").Result(); err == nil || strings.HasPrefix(err.Error(), "MISCONF") {
				t.Errorf("a write whose reply is not covered was answered %v, %v", reply, err)
			}
			refused(t, c, "MISCONF embedded store could not write its data directory", "INCR", "n")
			refused(t, c, "MISCONF ", "GET", "n")
			refused(t, c, "MISCONF ", "EVAL", pair, 3, "a", "b", "c")
			want(t, c, "PONG", "PING")
			idle.SetReadDeadline(time.Now().Add(2 * time.Minute))
			if _, err := idle.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
				t.Errorf("an idle connection goes on: %v", err)
			}
			if err := s.Close(); err == nil || !strings.Contains(err.Error(), "no space left") {
				t.Errorf("close: %v", err)
			}
			if n := strings.Count(logged.String(), "level=ERROR"); n != 1 {
				t.Errorf("logged %d times: %s", n, logged.String())
			}
			again := open(t, Config{Dir: dir})
			want(t, client(t, again), "1", "GET", "n")
			if !again.CleanStart() {
				t.Error("got an unclean start, want a clean one: what was not written was never answered")
			}
		})
	}
}

func TestAClosedLogIsNoticed(t *testing.T) {
	s := open(t, Config{Dir: t.TempDir()})
	c := client(t, s)
	s.journal.mu.Lock()
	s.journal.log.Close()
	s.journal.mu.Unlock()
	c.Incr(t.Context(), "n")
	refused(t, c, "MISCONF ", "INCR", "n")
	if err := s.Close(); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("close: %v", err)
	}
}

func TestCompactionLosesNothingWhileWritesGoOn(t *testing.T) {
	dir := t.TempDir()
	s := open(t, Config{Dir: dir, CompactBytes: 1})
	c := client(t, s)
	logs := func() int {
		s.journal.mu.Lock()
		defer s.journal.mu.Unlock()
		return s.journal.number
	}
	var all sync.WaitGroup
	var counts [workers]int
	for i := range workers {
		all.Go(func() {
			for n := 1; n <= 100 || logs() < 5; n++ {
				counts[i] = n
				if err := c.Eval(t.Context(), pair, []string{fmt.Sprint("count", i), fmt.Sprint("copy", i), "record"}).Err(); err != nil {
					t.Error(err)
				}
				if err := c.Set(t.Context(), fmt.Sprint("brief", i, n), "v", time.Duration(100+n)*time.Millisecond).Err(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	s.journal.stop() // what is under way ends, nothing is begun
	s.journal.compacting.Wait()
	after := client(t, open(t, Config{Dir: leave(t, dir)}))
	for i, n := range counts {
		want(t, after, strconv.Itoa(n+CounterJump), "GET", fmt.Sprint("count", i))
		want(t, after, strconv.Itoa(n), "HGET", fmt.Sprint("copy", i), "n")
	}
	want(t, after, strconv.Itoa(slices.Max(counts[:])), "ZCARD", "record")
}

func TestAKeyThatExpiresWhileASnapshotIsTakenDoesNotComeBack(t *testing.T) {
	bubble(t, Config{Dir: t.TempDir()}, func(t *testing.T, s *Store, c *redis.Client) {
		do(t, c, "HSET", "brief", "f", 1)
		do(t, c, "PEXPIRE", "brief", 1000)
		last, err := s.journal.rotate()
		if err != nil {
			t.Fatal(err)
		}
		do(t, c, "HSET", "brief", "f", 2) // in the new log, without the expiry
		time.Sleep(time.Second)
		want(t, c, "0", "EXISTS", "brief")
		if err := errors.Join(s.journal.snapshot(0), s.journal.dir.removeLogs(last)); err != nil {
			t.Fatal(err)
		}
		want(t, client(t, open(t, Config{Dir: leave(t, s.journal.dir.path)})), "0", "EXISTS", "brief")
	})
}

func TestASnapshotShowsNothingThatTheLogDoesNotHave(t *testing.T) {
	s := open(t, Config{Dir: t.TempDir()})
	// no caller waits for the reply, so nothing is flushed
	s.do(newProbe().peer, []string{"SET", "k", "v"})
	if s.journal.synced.Load() == s.journal.changes.Load() {
		t.Fatal("it is flushed")
	}
	if err := s.journal.snapshot(0); err != nil {
		t.Fatal(err)
	}
	if s.journal.synced.Load() != s.journal.changes.Load() {
		t.Error("the snapshot shows what the log does not have: a script could be cut in two")
	}
}

func TestASnapshotThatFailsLeavesTheLogs(t *testing.T) {
	dir := t.TempDir()
	var logged logtest.Text
	s := open(t, Config{Dir: dir, Logger: logged.Logger(), CompactBytes: 1})
	c := client(t, s)
	if err := os.Mkdir(filepath.Join(dir, snapshotName+".new"), 0o700); err != nil {
		t.Fatal(err)
	}
	for !strings.Contains(logged.String(), "no snapshot was written") {
		do(t, c, "INCR", "n")
	}
	n := do(t, c, "INCR", "n")
	if err := os.Remove(filepath.Join(dir, snapshotName+".new")); err != nil {
		t.Fatal(err)
	}
	kept, _ := strconv.Atoi(n)
	want(t, client(t, open(t, Config{Dir: leave(t, dir)})), strconv.Itoa(kept+CounterJump), "GET", "n")
}

func TestTheSnapshotMovesToARealRedis(t *testing.T) {
	dir := t.TempDir()
	s := open(t, Config{Dir: dir})
	c := client(t, s)
	do(t, c, "SET", "k\x00", "v\r\n", "EX", 100)
	do(t, c, "HSET", "h", "f", "v")
	do(t, c, "ZADD", "z", "0.1", "m", "+inf", "n")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	snapshot, err := os.ReadFile(filepath.Join(dir, snapshotName))
	if err != nil {
		t.Fatal(err)
	}
	server := redistest.Start(t)
	pipe, err := net.Dial("tcp", server.Addr()) // as redis-cli --pipe does
	if err != nil {
		t.Fatal(err)
	}
	defer pipe.Close()
	if _, err := pipe.Write(appendCommand(snapshot, "QUIT")); err != nil {
		t.Fatal(err)
	}
	replies, err := io.ReadAll(pipe)
	expect.Error(t, "reading the replies", err, nil)
	if text := string(replies); !strings.HasSuffix(text, "+OK\r\n") || strings.HasPrefix(text, "-") || strings.Contains(text, "\n-") {
		t.Fatalf("a real Redis answered %q, want no error", text)
	}
	c = server.Client()
	want(t, c, "v\r\n", "GET", "k\x00")
	want(t, c, "map[f:v]", "HGETALL", "h")
	want(t, c, "0.1", "ZSCORE", "z", "m")
	if ttl := c.TTL(t.Context(), "k\x00").Val(); ttl <= 0 || ttl > 100*time.Second {
		t.Errorf("TTL %v", ttl)
	}
}
