package cli

import "runtime/debug"

// mostSpare is the most that spareHeap sets aside, in bytes.
const mostSpare = 16 << 20

// spareHeap is memory that is never touched, so that the machine provides none, but that the
// garbage collector counts as in use. The collector runs when what is in use has doubled. A service
// has a few megabytes in use and makes garbage with each request: with this it collects a fifth as
// often. Where memory is limited (GOMEMLIMIT), it is an eighth of that at most.
func spareHeap() []byte {
	return make([]byte, min(mostSpare, debug.SetMemoryLimit(-1)/8))
}
