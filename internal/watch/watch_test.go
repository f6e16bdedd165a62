package watch_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/watch"
)

// Each step is what a look finds, and whether it is to be taken.
func TestWhatIsNewIsTakenOnceItIsTheSameAtTwoLooks(t *testing.T) {
	gone, away := errors.New("no such file"), errors.New("permission denied")
	var seen watch.Seen
	seen.Take("a", nil)
	for i, step := range []struct {
		version string
		err     error
		isNew   bool
	}{
		// it was taken at the start
		{"a", nil, false}, {"a", nil, false},
		// b was not whole
		{"b", nil, false}, {"c", nil, false}, {"c", nil, true}, {"c", nil, false},
		// told once
		{"", gone, false}, {"", gone, true}, {"", gone, false},
		{"", away, false}, {"", away, true},
		// the same as before, and back
		{"c", nil, false}, {"c", nil, true}, {"c", nil, false},
		// a content with a fault goes by its version
		{"d", gone, false}, {"d", gone, true}, {"d", away, false},
		{"c", nil, false}, {"d", nil, false}, {"c", nil, false}, {"c", nil, true},
	} {
		if got := seen.Look(step.version, step.err); got != step.isNew {
			t.Errorf("look %d finds %q (%v): got new %v, want %v", i+1, step.version, step.err, got, step.isNew)
		}
	}
	seen.Take("", gone)
	for range 2 {
		expect.Equal(t, "look after the error was told at once", seen.Look("", gone), false)
	}
}

func TestLooksEndWithStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		looks, ended := 0, false
		stop := watch.Every(time.Second, func(ctx context.Context) {
			if looks++; looks == 3 {
				<-ctx.Done()
				ended = true
			}
		})
		time.Sleep(time.Minute)
		stop()
		expect.Equal(t, "the look under way has ended when stop returns", ended, true)
		stop()
		time.Sleep(time.Minute)
		expect.Equal(t, "looks", looks, 3)
	})
}

func TestFileIsReadUpToItsBound(t *testing.T) {
	file := filepath.Join(t.TempDir(), "f")
	expect.MustEqual(t, "the error of writing the file", os.WriteFile(file, []byte("1234"), 0o600), nil)
	text, version, err := watch.Read(file, 4)
	expect.Error(t, "Read of 4 bytes, up to 4", err, nil)
	expect.Equal(t, "Read of 4 bytes, up to 4", string(text)+" "+version, "1234 "+watch.Version([]byte("1234")))
	if _, version, err := watch.Read(file, 3); err == nil || !strings.Contains(err.Error(), "up to 3 bytes") || version != "" {
		t.Errorf("Read of 4 bytes, up to 3: got version %q and error %v, want none and an error that says the bound", version, err)
	}
	expect.Equal(t, "a file of mode 0600 is exposed", watch.IsExposed(file), false)
	expect.MustEqual(t, "the error of opening the file to all", os.Chmod(file, 0o644), nil)
	expect.Equal(t, "a file of mode 0644 is exposed", watch.IsExposed(file), true)
}
