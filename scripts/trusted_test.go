package scripts_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/internal/expect"
	"github.com/coatcheck/coatcheck/scripts"
)

// trust has the box run the scripts of a store that trusts restarts.
func (b *box) trust() *box {
	trusting := *b
	trusting.instead = map[*scripts.Script]*scripts.Script{}
	for _, script := range all {
		trusting.instead[script] = script.Trusting()
	}
	return &trusting
}

// anotherIncarnation has the pool noted under an incarnation that is not the server's.
func (b *box) anotherIncarnation() {
	b.Helper()
	b.setHead("incarnation", strings.Repeat("0a", 20))
}

func TestTrustedRestartCostsAPoolNothing(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		trusting, ask := b.trust(), lease{newPools: "wait", skew: minute}
		b.create(ask)
		ask.nonce = "n0"
		g := b.lease(ask)
		b.anotherIncarnation()
		word(t, trusting.run(scripts.WorkerGet, poolKeys[:1], 0, 1), "ok", 9)
		p := g.proof()
		p.skew = minute
		word(t, trusting.prove(p), "ok", 3)
		ask.nonce = "n1"
		expect.Equal(t, "the worker id leased after a restart", trusting.lease(ask).id, "1")
		if head := b.head(); head["quarantine"] != "0" || head["incarnation"] == b.replid() {
			t.Errorf("after trusted requests the pool's head is %v, want no quarantine, and the incarnation that was noted before", head)
		}
		// A process that trusts no restart has all wait, once.
		end := b.quarantined(ask, b.now()+hour+minute)
		trusting.quarantined(ask, end)
		b.pass(end - b.now())
		ask.nonce = "n2"
		trusting.lease(ask)
	})
}

// What trust does not change: a pool that is missing, or of which a part is, may be lost.
func TestTrustedRestartFindsMissingStateAllTheSame(t *testing.T) {
	for name, loss := range losses() {
		if name == "another incarnation" || name == "no incarnation" || name == "two words for incarnation" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, b *box) {
				b = b.trust()
				ask := lease{newPools: "wait", skew: minute}
				b.create(ask)
				for i := range 2 {
					ask.nonce = fmt.Sprint("n", i)
					b.lease(ask)
				}
				loss.lose(b)
				b.quarantined(ask, b.now()+hour+minute)
			})
		})
	}
}

func TestTrustedRestartMovesNoCounter(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		trusting := b.trust()
		era := b.at(opening{}, "", false).era
		want(t, b.incr(7), "ok", "7")
		later(b)
		want(t, trusting.incr(1), "ok", "8")
		trusting.at(opening{floor: "8", life: "0", era: era}, "8", false)
		want(t, trusting.run(scripts.CounterEra, openKeys[2:], era, minute), "same")
		b.do("SET", counterKeys[0], "5")
		// A process that has seen more, and one that trusts no restart, move it.
		trusting.at(opening{floor: "8", life: "0", era: era}, "1008", true)
		b.at(opening{}, "2008", true)
	})
}

func TestTrustedRestartHoldsNoLockBack(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		const span = int(hour)
		trusting := b.trust()
		word(t, b.enter(ask{token: "a", span: span}), "doubt", 1)
		b.do("SET", lockKeys[5], "another-life 0")
		word(t, trusting.enter(ask{token: "a", span: span}), "granted", 3)
		b.do("DEL", lockKeys[5])
		word(t, trusting.enter(ask{token: "b", mode: "s", span: span}), "doubt", 1)
	})
}

func TestTrustingScriptsAreThoseThatAskForTheIncarnation(t *testing.T) {
	texts := readAll(t, "*.lua")
	for _, script := range all {
		trusting := script.Trusting()
		asks := strings.Contains(" "+strings.Join(parse(script.Name, texts[script.Name]).parts(), " ")+" ", " incarnation ")
		expect.Equal(t, script.Name+" has a text of its own for trusted restarts", trusting.SHA != script.SHA, asks)
		if trusting.Name != script.Name || trusting.Reads != script.Reads || trusting.Trusting() != trusting {
			t.Errorf("the trusting %s is %s, reads %v", script.Name, trusting.Name, trusting.Reads)
		}
		chained := script.Following("return 1", 0, 1, 1)
		expect.Equal(t, script.Name+" after another text trusts", chained.Trusting().SHA != chained.SHA, asks)
	}
}
