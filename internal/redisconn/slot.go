package redisconn

import (
	"strconv"
	"strings"
	"sync"
)

// Slots is how many hash slots a cluster has.
const Slots = 16384

// SlotTags has a short hash tag for every slot, the first number that lies in it.
var SlotTags = sync.OnceValue(func() []string {
	found, missing := make([]string, Slots), Slots
	for n := 0; missing > 0; n++ {
		tag := strconv.Itoa(n)
		if at := Slot(tag); found[at] == "" {
			found[at] = tag
			missing--
		}
	}
	return found
})

// Slot is where a cluster keeps the keys with a hash tag: CRC16 (XMODEM) of it, modulo 16384.
func Slot(tag string) int {
	crc := uint16(0)
	for b := range strings.SplitSeq(tag, "") {
		crc ^= uint16(b[0]) << 8
		for range 8 {
			carry := crc&0x8000 != 0
			crc <<= 1
			if carry {
				crc ^= 0x1021
			}
		}
	}
	return int(crc) % Slots
}
