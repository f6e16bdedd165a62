package segment

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

type ownerKey struct{}

// ownerOf is the owner of a call in these tests.
func ownerOf(ctx context.Context) string {
	owner, _ := ctx.Value(ownerKey{}).(string)
	return owner
}

func as(t *testing.T, owner string) context.Context {
	t.Helper()
	return context.WithValue(t.Context(), ownerKey{}, owner)
}

// draws has an owner draw an id of each of some tags, and returns of how many it got one.
func draws(t *testing.T, s *Segments, owner string, from, to int) (n int) {
	t.Helper()
	for i := from; i < to; i++ {
		_, err := s.Next(as(t, owner), fmt.Sprint("tag-", i))
		synctest.Wait() // a tag whose next range is being fetched gives no place up
		if err == nil {
			n++
			continue
		}
		wantIs(t, err, ErrTooManyTags)
	}
	return n
}

func TestOneOwnerDoesNotKeepAllTagsFromOthers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, tags(100), Config{MaxTags: 20, Owner: ownerOf})
		expect.Equal(t, "tags of a, alone", draws(t, s, "a", 0, 30), 20)
		time.Sleep(time.Second)
		expect.Equal(t, "tags of a that are in use", draws(t, s, "a", 10, 20), 10)
		expect.Equal(t, "tags of b, beside a", draws(t, s, "b", 30, 50), 10)
		expect.Equal(t, "tags of a that it has used least lately", draws(t, s, "a", 0, 10), 0)
		expect.Equal(t, "tags of a that it has used", draws(t, s, "a", 10, 20), 10)
		expect.Equal(t, "tags of c, beside a and b", draws(t, s, "c", 50, 60), 6)
		expect.Equal(t, "tags in use", s.Totals().Tags, 20)
		time.Sleep(DefaultPeriod * 5 / 4)
		expect.Equal(t, "tags of a, when all were unused for long", draws(t, s, "a", 60, 90), 20)
		expect.Equal(t, "tags in use", s.Totals().Tags, 20)
	})
}

// Names that the source does not have evict no tag of another owner.
func TestMadeUpNamesOfAnotherOwnerEvictNoTag(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, tags(20), Config{MaxTags: 20, Owner: ownerOf})
		draws(t, s, "a", 0, 20)
		for i := range 20 {
			_, err := s.Next(as(t, "b"), fmt.Sprint("made-up-", i))
			wantIs(t, err, ErrNotFound)
		}
		expect.Equal(t, "tags of a that are still there", draws(t, s, "a", 0, 20), 20)
		wantTags(t, s, 20, 0)
	})
}
