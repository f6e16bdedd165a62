package segment

import (
	"cmp"
	"context"
	"errors"
	"math"
	"os"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/redisstore"
)

// shelf is a Source in memory, with rows as Leaf's table has them: a fetch moves max by a step, and
// the range is what lies between.
type shelf struct {
	mu     sync.Mutex
	rows   map[string]*row
	takes  []take
	flying map[string]bool
	twice  bool // two Takes of a tag were under way at once

	// before is called for each Take, outside of the mutex: it may wait, and its error is the
	// answer.
	before func(ctx context.Context, tag string) error
}

type row struct {
	max, step int64 // step 0 = the row has no wish
	delta     int64
}

// take is one that brought a range.
type take struct {
	tag   string
	asked int64
	given Range
	at    time.Time
}

func newShelf(tag string, start, step int64) *shelf {
	return &shelf{rows: map[string]*row{tag: {max: start, step: step}}, flying: map[string]bool{}}
}

// add makes a row of step 10, or makes one anew.
func (s *shelf) add(tag string, start int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rows[tag] = &row{max: start, step: 10}
}

func (s *shelf) Take(ctx context.Context, tag string, step int64) (Range, error) {
	s.begin(tag)
	defer s.end(tag)
	if before := s.hook(); before != nil {
		if err := before(ctx, tag); err != nil {
			return Range{}, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.rows[tag]
	if r == nil {
		return Range{}, ErrNotFound
	}
	asked := step
	if step == 0 {
		step = cmp.Or(r.step, DefaultStep)
	}
	delta := cmp.Or(r.delta, 1)
	left := (math.MaxInt64 - r.max) / delta
	if left <= 0 {
		return Range{}, ErrExhausted
	}
	given := Range{Lo: r.max, Hi: r.max + min(step, left)*delta, Delta: r.delta, Step: r.step}
	r.max = given.Hi
	s.takes = append(s.takes, take{tag: tag, asked: asked, given: given, at: time.Now()})
	return given, nil
}

func (s *shelf) begin(tag string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.twice = s.twice || s.flying[tag]
	s.flying[tag] = true
}

func (s *shelf) end(tag string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.flying, tag)
}

func (s *shelf) hook() func(context.Context, string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.before
}

func (s *shelf) setBefore(before func(context.Context, string) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.before = before
}

// all gives what was taken of a tag so far.
func (s *shelf) all(tag string) []take {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.takes), func(t take) bool { return t.tag != tag })
}

// maxes are the row's max after each Take.
func (s *shelf) maxes(tag string) []int64 {
	var maxes []int64
	for _, t := range s.all(tag) {
		maxes = append(maxes, t.given.Hi)
	}
	return maxes
}

func (s *shelf) asked(tag string) []int64 {
	var asked []int64
	for _, t := range s.all(tag) {
		asked = append(asked, t.asked)
	}
	return asked
}

func (s *shelf) onlyOneAtATime(t testing.TB) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.twice {
		t.Error("two Takes of one tag were under way at once")
	}
}

var errDown = errors.New("connection refused")

// refused is a store that cannot be reached.
func refused(context.Context, string) error {
	return &redisstore.Error{Op: "take", Class: redisstore.ErrUnavailable, Cause: errDown}
}

// lost takes ids and loses the answer.
func lost(s *shelf, ids int64) func(context.Context, string) error {
	return func(_ context.Context, tag string) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.rows[tag].max += ids
		return &redisstore.Error{Op: "take", Class: redisstore.ErrUnknownOutcome, Cause: context.DeadlineExceeded}
	}
}

// gate holds Takes up until it is opened.
type gate struct{ opened chan struct{} }

func newGate() gate { return gate{make(chan struct{})} }

func (g gate) open() { close(g.opened) }

func (g gate) wait(ctx context.Context, _ string) error {
	select {
	case <-g.opened:
		return nil
	case <-ctx.Done():
		return &redisstore.Error{Op: "take", Class: redisstore.ErrUnknownOutcome, Cause: ctx.Err()}
	}
}

func open(t testing.TB, source Source, config Config) *Segments {
	t.Helper()
	s := New(source, config)
	t.Cleanup(s.Close)
	return s
}

// bubble runs a test in which a year takes seconds.
func bubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, test)
}

func handle(t testing.TB, s *Segments, name string) *Tag {
	t.Helper()
	tag, err := s.Tag(t.Context(), name)
	expect.NoError(t, "Tag", err)
	return tag
}

func next(t testing.TB, tag *Tag) int64 {
	t.Helper()
	id, err := tag.Next(t.Context())
	expect.NoError(t, "Next", err)
	return id
}

// nextN draws n ids in one call.
func nextN(t testing.TB, tag *Tag, n int) []int64 {
	t.Helper()
	ids := make([]int64, n)
	expect.NoError(t, "NextN", tag.Fill(t.Context(), ids))
	return ids
}

// slow draws n ids one by one, and lets all happen that needs no time to pass after each.
func slow(t testing.TB, tag *Tag, n int) []int64 {
	t.Helper()
	var ids []int64
	for range n {
		ids = append(ids, next(t, tag))
		synctest.Wait()
	}
	return ids
}

func wantIs(t testing.TB, err error, is ...error) {
	t.Helper()
	for _, target := range is {
		if !errors.Is(err, target) {
			t.Errorf("got the error %v, want %v", err, target)
		}
	}
}

// wantRun fails the test unless the ids are from, from+1 and so on.
func wantRun(t testing.TB, ids []int64, from int64) {
	t.Helper()
	for i, id := range ids {
		if id != from+int64(i) {
			t.Fatalf("id number %d is %d, want %d", i, id, from+int64(i))
		}
	}
}

func only(t testing.TB, s *Segments) Stats {
	t.Helper()
	all := s.Stats()
	if len(all) != 1 {
		t.Fatalf("there are %d tags: %+v", len(all), all)
	}
	return all[0]
}

// call is a Next under way.
type call struct {
	id  int64
	err error
}

func draw(ctx context.Context, tag *Tag) <-chan call {
	result := make(chan call, 1)
	go func() {
		id, err := tag.Next(ctx)
		result <- call{id, err}
	}()
	return result
}

// after answers after a time.
func after(d time.Duration) func(context.Context, string) error {
	return func(context.Context, string) error {
		time.Sleep(d)
		return nil
	}
}

// atEnd ends what tests share, after the last of them.
var atEnd []func()

// AtEnd has something ended after the last test, and before the check for goroutines that are left.
func AtEnd(end func()) { atEnd = append(atEnd, end) }

func TestMain(m *testing.M) {
	code := m.Run()
	for _, end := range atEnd {
		end()
	}
	if err := goleak.Find(); err != nil && code == 0 {
		_, _ = os.Stderr.WriteString("left: " + err.Error() + "\n")
		code = 1
	}
	os.Exit(code)
}
