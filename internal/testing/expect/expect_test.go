package expect_test

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// recorder keeps the failures of the test that is tested.
type recorder struct {
	testing.TB

	failures []string
}

func (*recorder) Helper() {}

func (r *recorder) Errorf(format string, args ...any) {
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}

func (r *recorder) Fatalf(format string, args ...any) { r.Errorf(format, args...) }

type lease struct {
	Holder string
	fence  int
}

func TestFailureSaysWhatWasAskedWhatCameAndWhatWasWanted(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		check func(t testing.TB)
		parts []string // none: it passes
	}{
		"equal numbers":       {func(t testing.TB) { expect.Equal(t, "Incr", 1, 1) }, nil},
		"numbers":             {func(t testing.TB) { expect.Equal(t, "Incr", 1, 2) }, []string{"Incr: got 1, want 2"}},
		"strings":             {func(t testing.TB) { expect.Equal(t, "Get", "a", "b") }, []string{`Get: got "a", want "b"`}},
		"long strings":        {func(t testing.TB) { expect.Equal(t, "Get", "a\nb\n", "a\nc\n") }, []string{"Get: ", "-want +got"}},
		"structures":          {func(t testing.TB) { expect.Equal(t, "Renew", lease{"a", 1}, lease{"a", 2}) }, []string{"Renew: ", "fence", "-", "2", "+", "1"}},
		"equal structures":    {func(t testing.TB) { expect.Equal(t, "Renew", lease{"a", 1}, lease{"a", 1}) }, nil},
		"options":             {func(t testing.TB) { expect.Equal(t, "List", []int{}, nil, cmpopts.EquateEmpty()) }, nil},
		"error of its class":  {func(t testing.TB) { expect.Error(t, "Read", fmt.Errorf("x: %w", io.EOF), io.EOF) }, nil},
		"another error":       {func(t testing.TB) { expect.Error(t, "Read", errors.New("no"), io.EOF) }, []string{"Read: got error no, want EOF"}},
		"unwanted error":      {func(t testing.TB) { expect.Error(t, "Read", io.EOF, nil) }, []string{"Read: got error EOF, want <nil>"}},
		"missing error":       {func(t testing.TB) { expect.Error(t, "Read", nil, io.EOF) }, []string{"Read: got error <nil>, want EOF"}},
		"no error":            {func(t testing.TB) { expect.NoError(t, "Read", nil) }, nil},
		"error where none is": {func(t testing.TB) { expect.NoError(t, "Read", io.EOF) }, []string{"Read: got error EOF, want none"}},
		"part":                {func(t testing.TB) { expect.Contains(t, "Help", "abc", "b") }, nil},
		"missing part":        {func(t testing.TB) { expect.Contains(t, "Help", "abc", "b", "d") }, []string{`Help: "d" is missing`, "abc"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := &recorder{TB: t}
			tc.check(r)
			said := strings.Join(r.failures, "\n")
			if (said == "") != (tc.parts == nil) {
				t.Fatalf("got failure %q, want parts %q", said, tc.parts)
			}
			for _, part := range tc.parts {
				if !strings.Contains(said, part) {
					t.Errorf("got failure %q, want it to contain %q", said, part)
				}
			}
		})
	}
}
