package segment_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/segment"
)

func take(t *testing.T, source segment.Source, tag string, step int64) segment.Range {
	t.Helper()
	taken, err := source.Take(t.Context(), tag, step)
	expect.NoError(t, "Take", err)
	return taken
}

// refused fails the test unless an error is the one that is wanted, and of one class.
func refused(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) || errors.Is(err, redisstore.ErrRefused) == errors.Is(err, redisstore.ErrUnknownOutcome) {
		t.Errorf("got %v, want %v", err, want)
	}
}

func TestSQLConfigurationsAreChecked(t *testing.T) {
	for _, table := range []string{"leaf alloc", "a.b.c", "1a", "a-b", "a;", "a`b", `a"b`, ".a", "a.", "ä", "a\n"} {
		if (segment.LeafConfig{Table: table}).Check() == nil || (segment.SequenceConfig{Table: table}).Check() == nil {
			t.Errorf("table %q is good", table)
		}
	}
	for _, table := range []string{"", "leaf_alloc", "ids.leaf_alloc", "_A9"} {
		expect.Error(t, fmt.Sprintf("table %q", table), (segment.LeafConfig{Table: table}).Check(), nil)
	}
	if (segment.LeafConfig{Timeout: 1}).Check() == nil || (segment.SequenceConfig{Timeout: -1}).Check() == nil {
		t.Error("what is out of bounds is good")
	}
	defer func() {
		if recover() == nil {
			t.Error("a dialect that there is not is good")
		}
	}()
	segment.NewLeafAlloc(nil, "sqlite", segment.LeafConfig{})
}
