//go:build check && linux

package servers

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/chaos/internal/chaostest"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
)

// Slots move between masters, one key after the other, while all that lies in them is used: calls
// are sent on (ASK, MOVED), and scripts that find their keys apart are refused (TRYAGAIN).
func TestSlotsMove(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3, 0)
	one, other := startService(t, cluster.URL()), startService(t, cluster.URL())
	l := startLoad(t, one, other)
	lot := chaostest.NewLot(t)
	for range 2 {
		for _, key := range used(t, lot, cluster) {
			m := cluster.StartMove(key)
			m.Rest(2 * time.Millisecond)
			time.Sleep(2 * time.Millisecond)
			m.Finish()
		}
		l.goesOn()
	}
	answers := map[string]int{}
	for _, node := range cluster.Nodes() {
		for line := range strings.Lines(node.Client().Info(t.Context(), "errorstats").Val()) {
			var name string
			var n int
			if _, err := fmt.Sscanf(strings.Replace(line, ":", " ", 1), "errorstat_%s count=%d", &name, &n); err == nil {
				answers[name] += n
			}
		}
	}
	t.Logf("the servers answered %v", answers)
	for _, name := range []string{"ASK", "MOVED", "TRYAGAIN"} {
		if answers[name] == 0 {
			t.Errorf("no call was answered %s: %v", name, answers)
		}
	}
	l.check(exceptions{lossy: true}, one) // each new connection may begin an incarnation
}

// used are keys of all slots that hold something with a name of the test's, and of some of the
// tokens', in any order.
func used(t *testing.T, lot *rand.Rand, cluster *redistest.Cluster) (keys []string) {
	t.Helper()
	tokens := 0
	for _, master := range cluster.Nodes() {
		all := master.Client().Keys(t.Context(), "*").Val()
		slices.Sort(all)
		lot.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		for _, key := range all {
			_, tag, _ := strings.Cut(key, "{")
			tag, _, _ = strings.Cut(tag, "}")
			same := func(other string) bool { return strings.Contains(other, "{"+tag+"}") }
			if slices.ContainsFunc(keys, same) {
				continue
			}
			if !slices.Contains([]string{counterName, lockName, poolName}, tag) {
				if tokens++; tokens > 40 {
					continue
				}
			}
			keys = append(keys, key)
		}
	}
	lot.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	return keys
}
