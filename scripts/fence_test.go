package scripts_test

import (
	"fmt"
	"testing"
)

// grants is how many grants in a row are looked at. Under the race detector a script costs the
// embedded store many times what it costs a redis-server; make check looks at as many there.
func (b *box) grants() int {
	if b.kind == "embedded" {
		return 150
	}
	return thousand
}

const thousand = 1000

// rising fails the test unless each fence is larger than the one before and a whole number that
// every Lua and JavaScript can hold.
func rising(t *testing.T) func(fence int64) {
	last := int64(0)
	return func(fence int64) {
		t.Helper()
		if fence <= last || fence >= 1<<53 {
			t.Fatalf("fence %d follows %d", fence, last)
		}
		last = fence
	}
}

func TestFencesOfATokenRiseEvenIfItsRecordWasLost(t *testing.T) {
	each(t, func(t *testing.T, b *box) { fencesOfAToken(t, b, b.grants()) })
}

func fencesOfAToken(t *testing.T, b *box, grants int) {
	t.Helper()
	next := rising(t)
	for i := range grants {
		owner := fmt.Sprint("owner", i)
		next(b.granted(claim{owner: owner, policy: "takeover"}))
		switch i % 3 {
		case 0:
			b.extend(owner, 0) // the next one takes over
		case 1:
			b.release(owner)
		default:
			b.do("DEL", tokenKey[0])
		}
	}
}

func TestFencesOfAPoolRiseEvenIfItWasLost(t *testing.T) {
	each(t, func(t *testing.T, b *box) { fencesOfAPool(t, b, b.grants()) })
}

func fencesOfAPool(t *testing.T, b *box, grants int) {
	t.Helper()
	next := rising(t)
	for i := range grants {
		if i%50 == 49 {
			b.do("DEL", poolKeys[0], poolKeys[1], poolKeys[2])
		}
		g := b.lease(lease{nonce: fmt.Sprint("n", i), bits: 3})
		next(g.fence)
		b.giveBack(g)
	}
}

func TestFenceFollowsOneThatIsAheadOfTheClock(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		const ahead = "9007199254740000" // near 2^53
		b.granted(claim{})
		b.setWord("fence", ahead)
		b.release("ann")
		for i := range int64(3) {
			between(t, "the token's fence", b.granted(claim{owner: fmt.Sprint(i)}), 9007199254740001+i, 9007199254740001+i)
			b.release(fmt.Sprint(i))
		}
		b.lease(lease{nonce: "a"})
		b.setHead("fence", ahead)
		for i := range int64(3) {
			between(t, "the pool's fence", b.lease(lease{nonce: fmt.Sprint(i)}).fence, 9007199254740001+i, 9007199254740001+i)
		}
	})
}
