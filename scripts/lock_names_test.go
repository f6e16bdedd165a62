package scripts_test

import (
	"fmt"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/scripts"
)

// However many names lie on the list, held or ended, one call reads and removes a bounded number.
func TestCallForNamesOfLocksIsBounded(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		const ended, held, some = 3500, 2500, 1000
		add := func(n int, kind string, from int64) {
			words := []any{"ZADD", listKey[0]}
			for i := range n {
				together := int64(i / 3) // three end at once
				words = append(words, from+together, fmt.Sprintf("%s-%04d", kind, i))
			}
			b.do(words...)
		}
		add(ended, "ended", b.now()-hour)
		add(held, "held", b.now()+hour)
		end, last, seen := "0", "", map[string]bool{}
		for page := 0; ; page++ {
			reply := b.run(scripts.LockNames, listKey, end, last, some)[1:]
			if len(reply) > 2*some {
				t.Fatalf("%s: got %d names, want %d at most", lastAsked(t), len(reply)/2, some)
			}
			for i := 0; i < len(reply); i += 2 {
				last, end = reply[i], reply[i+1]
				seen[last] = true
			}
			if len(reply) < 2*some {
				break
			}
		}
		expect.Equal(t, "names of held locks on all pages", len(seen), held)
		for left := ended; left > 0; left -= some {
			before := b.do("ZCARD", listKey[0]).(int64)
			want(t, b.run(scripts.LockNote, listKey, "held-0000", minute), "ok")
			expect.Equal(t, fmt.Sprintf("names taken off where %d have ended", left), before-b.do("ZCARD", listKey[0]).(int64), int64(min(left, some)))
		}
	})
}

// A lease that is about to end is noted as well: the embedded store keeps no key for less than
// 100 ms.
func TestNameOfALeaseThatIsAboutToEndIsNoted(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		want(t, b.run(scripts.LockNote, listKey, "brief", 20), "ok")
		between(t, "the list's expiry", b.expiry(listKey[0])-b.now(), 1, minute)
	})
}
