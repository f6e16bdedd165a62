package workerlease

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func FuzzReadSlot(f *testing.F) {
	f.Add("nonce 1 2 3 h name")
	f.Add("nonce 1 2 3 r ")
	f.Add("nonce 1 1000 3 h a name")
	f.Add("nonce 1 1001 3 r ")
	f.Add("nonce 1 2 h name")
	f.Add("  1 99999999999999999999 3 h 1 x y")
	f.Add("nonce 1 9223372036854775807 3 h ")
	f.Fuzz(func(t *testing.T, record string) {
		now := time.UnixMilli(1000)
		for _, cooldown := range []time.Duration{0, time.Second} {
			slot, err := readSlot(record, now, cooldown)
			if err != nil {
				if slot != (Slot{}) {
					t.Fatalf("%q is %+v and %v", record, slot, err)
				}
				continue
			}
			words := strings.SplitN(record, " ", 6)
			open := record != "" && words[4] == "h" && slot.NotAfter.After(now)
			if (slot.State == SlotStateHeld) != open || slot.State == SlotStateFree && slot.NotAfter.Add(cooldown).After(now) && words[4] == "h" {
				t.Fatalf("%q is %s until %v", record, slot.State, slot.NotAfter)
			}
			if slot.State == SlotStateCooling && cooldown == 0 {
				t.Fatalf("%q cools without a cool-down", record)
			}
		}
	})
}

func FuzzOpenToken(f *testing.F) {
	f.Add("GuQMgH7VGtZYduBf8CztWQ.1795188073884")
	f.Add("GuQMgH7VGtZYduBf8CztWQ.")
	f.Add(".1")
	f.Add("GuQMgH7VGtZYduBf8CztWQ.1.1")
	f.Fuzz(func(t *testing.T, text string) {
		nonce, notBefore, ok := openToken(text)
		if !ok {
			return
		}
		var from int64
		if _, err := fmt.Sscan(notBefore, &from); err != nil || len(nonce) != 22 {
			t.Fatalf("%q gave nonce %q and not before %q", text, nonce, notBefore)
		}
	})
}
