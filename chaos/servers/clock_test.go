//go:build check && linux

package servers

import (
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// The wall clock of Redis is set forward and back by minutes, further than the assumptions about
// clocks allow. Leases may end early then, and so two clients may have the lock; nothing else gives
// way. All processes share the machine's monotonic clock.
func TestClockOfRedisIsSet(t *testing.T) {
	moved, err := os.Create(filepath.Join(t.TempDir(), "moved"))
	expect.NoError(t, "os.Create", err)
	defer moved.Close()
	set := func(by time.Duration) {
		t.Helper()
		if _, err := moved.WriteAt(binary.NativeEndian.AppendUint64(nil, uint64(by/time.Second)), 0); err != nil {
			t.Fatalf("WriteAt: got error %v, want none", err)
		}
	}
	set(0)
	server := startWith(t, "export LD_PRELOAD="+clockLibrary(t)+" CLOCK_MOVED="+moved.Name())
	one, other := startService(t, server.URL()), startService(t, server.URL())
	l := startLoad(t, one, other)
	for _, step := range []struct {
		by    time.Duration
		those []string // that go on at once; nil = all
	}{
		{5 * time.Minute, nil},
		{5*time.Minute - 3*time.Second, nil},
		{10 * time.Minute, nil},
		{0, []string{"count", "pay"}}, // the others wait until the clock has caught up
		{10 * time.Minute, nil},
	} {
		set(step.by)
		now, err := server.Client().Time(t.Context()).Result()
		if is := time.Until(now); err != nil || (is-step.by).Abs() > 30*time.Second {
			t.Fatalf("the clock of Redis is %v from the machine's, %v; want %v", is, err, step.by)
		}
		time.Sleep(ttl) // every lease is renewed
		l.goesOn(step.those...)
		t.Logf("set by %v: %v", step.by, l)
	}
	l.check(exceptions{clocks: true}, one)
}

// clockLibrary builds the library with the moved clock.
func clockLibrary(t *testing.T) string {
	t.Helper()
	compiler, err := exec.CommandContext(t.Context(), "go", "env", "CC").Output()
	expect.NoError(t, "exec.CommandContext go", err)
	library := filepath.Join(t.TempDir(), "clock.so")
	build := exec.CommandContext(t.Context(), strings.TrimSpace(string(compiler)), "-shared", "-fPIC", "-O", "-o", library, "testdata/clock.c")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the clock: %v\n%s", err, out)
	}
	return library
}
