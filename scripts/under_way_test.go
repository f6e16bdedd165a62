package scripts_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/scripts"
)

// began claims an operation by its name; its record stays for that long.
func (b *box) began(name string, stays int64) {
	b.Helper()
	keys := []string{"{" + name + "}", tokenKey[1]}
	word(b, b.run(scripts.TokenClaim, keys, "ann", "print", 1, "hold", hour, "", "any", "", "", "", "", stays, ""), "granted", 3)
}

// listed are the operations on the list, in doubt or not.
func (b *box) listed() []string {
	b.Helper()
	members, err := b.client.ZRange(b.Context(), tokenKey[1], 0, -1).Result()
	expect.NoError(b, "ZRANGE", err)
	return slices.DeleteFunc(members, func(member string) bool { return strings.HasPrefix(member, "~") })
}

// Nobody lists a gateway's operations in doubt: the list must not grow for ever.
func TestListOfOperationsIsBoundedByWhatIsStillKept(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		b.began("kept", hour)
		for i := range 40 {
			b.began(fmt.Sprint("short", i), 100)
		}
		for b.expiry("{short39}") != -2 {
			b.tick()
		}
		for i := range 10 { // each takes four off
			b.began(fmt.Sprint("later", i), hour)
		}
		left := b.listed()
		expect.Equal(t, "operations listed after 40 records have ended and 10 more were claimed", len(left), 11)
		expect.Equal(t, "the one in doubt that is still kept is listed", slices.Contains(left, "kept"), true)
		expect.Equal(t, "members of the list", b.do("ZCARD", tokenKey[1]), any(int64(22)))
	})
}

// A heartbeat adds an operation too.
func TestHeartbeatKeepsItsOperationListedAndTakesOthersOff(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		b.granted(claim{})
		for i := range 4 {
			b.began(fmt.Sprint("short", i), 100)
		}
		for b.expiry("{short3}") != -2 {
			b.tick()
		}
		word(t, b.extend("ann", 0), "ok", 1)
		want(t, b.listed(), "t")
		b.tick()
		want(t, b.doubts(), "t")
	})
}

func TestEndedOperationLeavesNothingOnTheList(t *testing.T) {
	for name, end := range map[string]func(*box){
		"completed":  func(b *box) { want(b, b.complete("ann", "x"), "ok") },
		"given back": func(b *box) { want(b, b.release("ann"), "forgotten") },
		"settled":    func(b *box) { want(b, b.settle("refused", ""), "ok") },
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, b *box) {
				b.inDoubt(claim{})
				end(b)
				expect.Equal(t, "members of the list", b.do("ZCARD", tokenKey[1]), any(int64(0)))
			})
		})
	}
}
