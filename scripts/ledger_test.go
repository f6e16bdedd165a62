package scripts_test

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/scripts"
)

var ledgerKey = []string{"{l}"}

func (b *box) charge(entry string) int64 {
	b.Helper()
	reply := b.run(scripts.LedgerAppend, ledgerKey, entry)
	word(b, reply, "ok", 1)
	return number(b, reply[1])
}

func TestLedgerListsTheNewestChargesOldestFirst(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		want(t, b.run(scripts.LedgerList, ledgerKey, 10), "ok", "0")
		before := b.now()
		var entries []string
		for i := range 5 {
			entries = append(entries, fmt.Sprintf(`{"id":%d,"note":"\u0000 – é"}`, i))
			between(t, "charged at", b.charge(entries[i]), before, b.now())
			b.tick()
		}
		unchanged := b.look(ledgerKey...)
		for _, most := range []int{1, 3, 5, 6, 1000} {
			shown := entries[max(0, 5-most):]
			reply := b.run(scripts.LedgerList, ledgerKey, most)
			if reply[1] != "5" || len(reply) != 2+2*len(shown) {
				t.Fatalf("the newest %d: got %q", most, reply)
			}
			for i, entry := range shown {
				if reply[2+2*i] != entry {
					t.Errorf("the newest %d: entry %d is %q, want %q", most, i, reply[2+2*i], entry)
				}
				// Redis writes a score as it likes
				micros, err := strconv.ParseFloat(reply[3+2*i], 64)
				if err != nil {
					t.Fatalf("the newest %d: the time of charge %d is no number: %v", most, i, err)
				}
				between(t, "charged at", int64(micros), before*1000, b.now()*1000+999)
			}
		}
		b.same(unchanged)
	})
}

func TestLedgerKeepsEqualChargesApartByTheirIDs(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		b.charge(`{"id":"a","amount":5}`)
		b.charge(`{"id":"b","amount":5}`)
		if reply := b.run(scripts.LedgerList, ledgerKey, 10); reply[1] != "2" {
			t.Errorf("ledger_list of two equal charges: got %q, want both", reply)
		}
	})
}

func TestFullLedgerDropsItsOldestThousand(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		var old []redis.Z
		for i := range 10_000 {
			old = append(old, redis.Z{Score: float64(i), Member: fmt.Sprintf("old %05d", i)})
		}
		expect.NoError(t, "filling the ledger", b.client.ZAdd(t.Context(), ledgerKey[0], old...).Err())
		b.charge("new")
		reply := b.run(scripts.LedgerList, ledgerKey, 10_000)
		if reply[1] != "9001" || reply[2] != "old 01000" || reply[len(reply)-2] != "new" {
			t.Errorf("%s charges from %q to %q, want 9001 from the thousandth on", reply[1], reply[2], reply[len(reply)-2])
		}
	})
}
