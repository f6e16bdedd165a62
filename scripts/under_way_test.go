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
	word(b, b.run(scripts.TokenClaim, keys, "ann", fmt.Sprint(hour, "\t1\tprint\thold\t\t\t\t"), 1, "", "any", "", stays), "granted", 3)
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
		added := 0
		expect.Eventually(t, "claims take the ended ones off the list", func() bool {
			b.began(fmt.Sprint("later", added), hour)
			added++
			return len(b.listed()) == added+1
		})
		expect.Equal(t, "the one in doubt that is still kept is listed", slices.Contains(b.listed(), "kept"), true)
		expect.Equal(t, "members of the list", b.do("ZCARD", tokenKey[1]), any(int64(2*(added+1))))
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
		expect.Eventually(t, "a heartbeat takes the ended ones off the list", func() bool {
			word(t, b.extend("ann", 0), "ok", 1)
			return len(b.listed()) == 1
		})
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
