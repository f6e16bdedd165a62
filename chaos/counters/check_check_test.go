//go:build check

package counters

import (
	"testing"

	"github.com/coatcheck/coatcheck/chaos/internal/chaostest"
)

// What is put in, is found, and nothing else.
func TestCheckFindsValuesThatAreToldTwiceOrFall(t *testing.T) {
	for _, row := range []struct {
		name           string
		all            []increment
		twice, falling int64
	}{
		{"in order", []increment{{0, 1, 1, 0, 10}, {0, 2, 5, 11, 20}, {0, 6, 6, 21, 30}}, 0, 0},
		{"a gap", []increment{{0, 1, 1, 0, 10}, {0, 10, 11, 11, 20}}, 0, 0},
		{"at once, the later one first", []increment{{0, 2, 2, 0, 20}, {0, 1, 1, 10, 30}}, 0, 0},
		{"one value twice", []increment{{0, 1, 1, 0, 20}, {0, 1, 1, 10, 30}}, 1, 0},
		{"one value three times", []increment{{0, 1, 1, 0, 20}, {0, 1, 1, 10, 30}, {0, 1, 1, 15, 30}}, 2, 0},
		{"a range in another one", []increment{{0, 1, 100, 0, 20}, {0, 41, 50, 10, 30}, {0, 60, 120, 10, 30}}, 51, 0},
		{"smaller, after a return", []increment{{0, 5, 9, 0, 10}, {0, 1, 4, 11, 20}}, 0, 1},
		{"smaller than the largest of those before", []increment{{0, 9, 9, 0, 5}, {0, 2, 2, 1, 6}, {0, 3, 3, 7, 8}}, 0, 1},
		{"the same again, later", []increment{{0, 5, 5, 0, 10}, {0, 5, 5, 11, 20}}, 1, 1},
		{"alike, but another counter", []increment{{0, 5, 5, 0, 10}, {1, 5, 5, 11, 20}, {1, 6, 6, 21, 22}}, 0, 0},
	} {
		byCounter := map[counterID][]increment{}
		for _, one := range row.all {
			byCounter[one.counter] = append(byCounter[one.counter], one)
		}
		found := judge(byCounter, chaostest.Stages{{From: 0, Name: "first"}, {From: 11, Name: "second"}})
		if found.calls != len(row.all) || found.twice.N != row.twice || found.falling.N != row.falling {
			t.Errorf("%s: %v, want %d and %d", row.name, found, row.twice, row.falling)
		}
		if row.falling == 1 && row.twice == 1 && (found.twice.During["second"] != 1 || found.falling.During["second"] != 1) {
			t.Errorf("%s: %v, not told when", row.name, found)
		}
	}
}
