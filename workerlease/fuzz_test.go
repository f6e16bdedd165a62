package workerlease

import (
	"fmt"
	"testing"
	"time"
)

func FuzzReadSlot(f *testing.F) {
	f.Add("nonce 1 2 3 h 30000 name")
	f.Add("nonce 1 2 3 r 30000 ")
	f.Add("nonce 1 2 h 30000 name")
	f.Add("  1 99999999999999999999 3 h 1 x y")
	f.Fuzz(func(t *testing.T, record string) {
		now := time.UnixMilli(1000)
		slot, err := readSlot(record, now)
		if err != nil {
			return
		}
		if (slot.State == Held) != slot.NotAfter.After(now) {
			t.Fatalf("%q is %s until %v", record, slot.State, slot.NotAfter)
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
