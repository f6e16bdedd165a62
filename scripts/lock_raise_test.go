package scripts_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/internal/expect"
	"github.com/coatcheck/coatcheck/scripts"
)

func (b *box) raise(token string, fence int64) []string {
	b.Helper()
	return b.run(scripts.LockRaise, lockKeys[:2], tokenOf(token), fence, hour)
}

// noted is the fence that is written down beside the lock, and for whom.
func (b *box) noted() (fence int64, token string) {
	b.Helper()
	words := strings.Fields(fmt.Sprint(b.do("GET", lockKeys[1])))
	return number(b, words[0]), words[1]
}

func TestRaisedFenceIsTheFloorOfLaterOnes(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		first := b.hold(ask{token: "a", ttl: minute})
		since := strings.Fields(fmt.Sprint(b.do("GET", lockKeys[1])))[2]
		const apart = int64(3_600_000_000) // an hour of another server's clock
		want(t, b.raise("a", first+apart), "ok", fmt.Sprint(first+apart))
		want(t, strings.Fields(fmt.Sprint(b.do("GET", lockKeys[1]))), fmt.Sprint(first+apart), tokenOf("a"), since, "-")
		between(t, "the lock's expiry", b.expiry(lockKeys[0])-b.now(), hour-slack, hour+slack)
		// it is an hour ahead of the time
		between(t, "the fence's expiry", b.expiry(lockKeys[1])-b.now(), 2*hour+minute-slack, 2*hour+minute+slack)
		// asked again, it is the same
		want(t, b.enter(ask{token: "a"})[:2], "granted", fmt.Sprint(first+apart))

		b.left("a")
		next := b.hold(ask{token: "b"})
		between(t, "the next fence", next, first+apart+run+1, first+apart+run+1)
		before := b.look(lockKeys...)
		want(t, b.raise("b", first), "ok", fmt.Sprint(next)) // it never falls
		want(t, b.raise("b", next), "ok", fmt.Sprint(next))
		b.same(before)
	})
}

// A raise that comes late, or to a server that has lost the lock, changes nothing.
func TestFenceIsRaisedOnlyWhileTheLockIsTheTokensOwn(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		lost := func(token string) {
			t.Helper()
			before := b.look(lockKeys...)
			want(t, b.raise(token, 1<<53-1), "lost")
			b.same(before)
		}
		lost("a")
		fence := b.hold(ask{token: "a"})
		lost("b")
		b.left("a")
		lost("a")
		next := b.hold(ask{token: "b"})
		lost("a")
		want(t, b.run(scripts.LockBreak, lockKeys[:5], next, terms(hour, minute, "0", 0))[:1], "broken")
		lost("b")
		b.hold(ask{token: "c", ttl: 100})
		expect.Eventually(t, "the lease of 100 ms ends", func() bool { return b.do("EXISTS", lockKeys[0]).(int64) == 0 })
		lost("c")
		b.hold(ask{token: "s", mode: "s"})
		lost("s") // it is not of an exclusive lock
		b.left("s")
		b.do("SET", lockKeys[0], tokenOf("p"), "PX", hour) // a plain client has no fence to raise
		lost("p")
		if last, token := b.noted(); last <= fence || token == tokenOf("a") {
			t.Errorf("fence %d of %s is noted after %d", last, token, fence)
		}
	})
}

func TestRaisedFencesStayWhatALuaNumberHolds(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		b.hold(ask{token: "a"})
		const near = int64(1<<53 - 3 - run)
		want(t, b.raise("a", near), "ok", fmt.Sprint(near))
		want(t, b.raise("a", near+1), "ok", fmt.Sprint(near+1))
		b.left("a")
		between(t, "the next fence", b.hold(ask{token: "b"}), near+run+2, near+run+2)
	})
}

// The rows join the table of all scripts before the tests run.
var _ = func() int {
	for key := range 2 {
		misuses = append(misuses, misuse{
			name: fmt.Sprintf("%s: key %d", scripts.LockRaise.Name, key+1), script: scripts.LockRaise, keys: lockKeys[:2], list: key,
			before: func(b *box) []any {
				b.hold(ask{token: "a"})
				return []any{tokenOf("a"), 1, hour}
			},
		})
	}
	return len(misuses)
}()
