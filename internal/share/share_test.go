package share_test

import (
	"fmt"
	"testing"

	"github.com/coatcheck/coatcheck/internal/share"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

func TestWhoHasTheMostGivesUpUntilAllHaveAsMany(t *testing.T) {
	t.Parallel()
	var places share.Places
	for range 10 {
		places.Take("a")
	}
	_, ok := places.Yields("a")
	expect.Equal(t, "a gives one up for itself", ok, false)
	for {
		from, ok := places.Yields("b")
		if !ok {
			break
		}
		expect.Equal(t, "who gives one up for b", from, "a")
		places.Free(from)
		places.Take("b")
	}
	expect.Equal(t, "places of a", places.Of("a"), 5)
	expect.Equal(t, "places of b", places.Of("b"), 5)
	for range 5 {
		places.Free("a")
	}
	expect.Equal(t, "places of a, which has given all back", places.Of("a"), 0)
	from, ok := places.Yields("a")
	expect.Equal(t, "who gives one up for a", fmt.Sprint(from, ok), "btrue")
}

func TestQuotaKeepsRoomForOthers(t *testing.T) {
	t.Parallel()
	quota := share.Quota{Most: 100}
	var leaves []func()
	fill := func(owner string) (n int) {
		for {
			leave, ok := quota.Take(owner)
			if !ok {
				return n
			}
			leaves = append(leaves, leave)
			n++
		}
	}
	expect.Equal(t, "places of the first, alone", fill("a"), 50)
	expect.Equal(t, "places of the second", fill("b"), 25)
	expect.Equal(t, "places of the third", fill("c"), 25)
	expect.Equal(t, "places of the fourth, when none is left", fill("d"), 0)
	for _, leave := range leaves[:30] { // of the first
		leave()
	}
	expect.Equal(t, "places of the fourth", fill("d"), 25)
	expect.Equal(t, "places of the first, which has 20", fill("a"), 5)
}

func TestQuotaOfFewPlaces(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		quota *share.Quota
		want  int
	}{{&share.Quota{Most: 1}, 1}, {&share.Quota{Most: 2}, 1}, {&share.Quota{Most: 3}, 1}, {&share.Quota{Most: 4}, 2}, {&share.Quota{Most: 3, Lone: true}, 3}} {
		n := 0
		for {
			if _, ok := row.quota.Take("a"); !ok {
				break
			}
			n++
		}
		expect.Equal(t, fmt.Sprintf("places of one owner, of %d (lone: %t)", row.quota.Most, row.quota.Lone), n, row.want)
	}
}

func TestQuotaOfWhatIsTakenByTheAmount(t *testing.T) {
	t.Parallel()
	quota := share.Quota{Most: 1000, Each: 300}
	for i, row := range []struct {
		owner string
		n     int
		want  bool
	}{
		{"a", 501, false}, {"a", 450, true}, {"a", 50, true}, {"a", 1, false}, {"a", 0, true}, {"b", 301, false}, {"b", 300, true}, {"b", 1, false},
		{"c", 200, true}, {"c", 1, false}, {"a", -400, true}, {"a", 200, true}, {"a", 1, false}, {"c", 100, true}, {"c", 1, false},
	} {
		if row.n < 0 {
			quota.Add(row.owner, row.n)
			continue
		}
		expect.Equal(t, fmt.Sprintf("step %d: %s takes %d", i, row.owner, row.n), quota.TakeMany(row.owner, row.n), row.want)
	}
	quota.Add("b", 1000) // it is used already
	expect.Equal(t, "whether b is within its share", quota.TakeMany("b", 0), false)
}
