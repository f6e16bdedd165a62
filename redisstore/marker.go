package redisstore

import (
	"strconv"
	"strings"
	"sync"
)

// slots is how many hash slots a cluster has.
const slots = 16384

// Marker returns the key beside all records of one kind in the slot of a name: one for the whole
// store, in a cluster one for each slot. What is true of all of them, such as the incarnation that
// wrote them, is noted there. It must not be one for each name, since it cannot expire.
func (s *Store) Marker(kind, name string) string { return s.SlotKey(kind, "marker", name) }

// SlotKey returns the key of a part that all records of one kind in the slot of a name share: one
// key for the whole store, in a cluster one for each slot, so that a script may take it together
// with the name's record.
func (s *Store) SlotKey(kind, part, name string) string {
	if s.mode != Cluster {
		return s.Key(kind, part)
	}
	return s.Key(kind, tags()[slot(name)], part)
}

// SlotKeys returns every key that SlotKey can return for a part: one, or in a cluster 16,384.
func (s *Store) SlotKeys(kind, part string) []string {
	if s.mode != Cluster {
		return []string{s.Key(kind, part)}
	}
	keys := make([]string, 0, slots)
	for _, tag := range tags() {
		keys = append(keys, s.Key(kind, tag, part))
	}
	return keys
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
