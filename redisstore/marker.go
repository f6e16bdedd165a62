package redisstore

import (
	"strconv"
	"strings"
	"sync"
)

// slots is how many hash slots a cluster has.
const slots = 16384

// Marker returns the key beside all records of one kind in the slot of a name: one for the whole store, in a cluster one for each slot. What is true of all of them, such as
// the incarnation that wrote them, is noted there. It must not be one for each name, since it can not expire.
func (s *Store) Marker(kind, name string) string {
	if s.mode != Cluster {
		return s.Key(kind, "marker")
	}
	return s.Key(kind, tags()[slot(name)], "marker")
}

// tags has a short hash tag for every slot, the first number that lies in it.
var tags = sync.OnceValue(func() []string {
	found, missing := make([]string, slots), slots
	for n := 0; missing > 0; n++ {
		tag := strconv.Itoa(n)
		if at := slot(tag); found[at] == "" {
			found[at] = tag
			missing--
		}
	}
	return found
})

// slot is where a cluster keeps the keys with a hash tag: CRC16 (XMODEM) of it, modulo 16384.
func slot(tag string) int {
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
	return int(crc) % slots
}
