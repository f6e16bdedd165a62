package number

import (
	"crypto/cipher"
	"crypto/subtle"
	"encoding/binary"
	"math/bits"
	"sync"
)

// ff1 is the cipher FF1 of NIST SP 800-38G with one tweak, over numbers of n digits in some radix:
// a Feistel network of ten rounds that adds to each half, by turns, a function of the other half.
// The function is a CBC-MAC over a header, the tweak, the round and the half. All but the MAC's
// last block is the same for every number and is computed once, so that a round is one block of
// AES. It is safe for concurrent use.
type ff1 struct {
	block cipher.Block

	left, right uint64 // how many numbers a half can be: radix^(n/2), and radix^(n-n/2)
	// the MAC's last block without round and half, and what the blocks before it have come to
	high, low uint64
	// where the round's number stands in the last block, in bits from the end: the half follows it
	round int
	cut   uint // how many bits of the function's block are not used
}

const rounds = 10

// newFF1 needs radix^(n-n/2) to be below 2^56, so that a half fits into seven bytes.
func newFF1(block cipher.Block, radix uint32, n int, tweak []byte) *ff1 {
	f := &ff1{block: block, left: power(radix, n/2), right: power(radix, n-n/2)}
	half := (bits.Len64(f.right-1) + 7) / 8 // b in the standard, in bytes
	f.round, f.cut = 8*half, uint(128-8*((half+3)/4*4+4))

	blocks := binary.BigEndian.AppendUint32([]byte{1, 2, 1}, radix<<8|rounds)
	blocks = append(blocks, byte(n/2))                                 //nolint:gosec // a few digits
	blocks = binary.BigEndian.AppendUint32(blocks, uint32(n))          //nolint:gosec // a few digits
	blocks = binary.BigEndian.AppendUint32(blocks, uint32(len(tweak))) //nolint:gosec // MaxTweak at most
	blocks = append(blocks, tweak...)
	for (len(blocks)+1+half)%aesBlock != 0 {
		blocks = append(blocks, 0)
	}
	blocks = append(blocks, make([]byte, 1+half)...)

	last := len(blocks) - aesBlock
	mac := make([]byte, aesBlock)
	for at := 0; at < last; at += aesBlock {
		subtle.XORBytes(mac, mac, blocks[at:])
		block.Encrypt(mac, mac)
	}
	f.high = binary.BigEndian.Uint64(mac) ^ binary.BigEndian.Uint64(blocks[last:])
	f.low = binary.BigEndian.Uint64(mac[8:]) ^ binary.BigEndian.Uint64(blocks[last+8:])
	return f
}

const aesBlock = 16 // bytes

func power(radix uint32, n int) uint64 {
	p := uint64(1)
	for range n {
		p *= uint64(radix)
	}
	return p
}

// scratches are blocks for AES to work in: what goes through an interface is on the heap.
var scratches = sync.Pool{New: func() any { return new([aesBlock]byte) }}

// encrypt maps both halves of a number to those of another.
func (f *ff1) encrypt(a, b uint64) (left, right uint64) {
	scratch := scratches.Get().(*[aesBlock]byte)
	defer scratches.Put(scratch)
	for i := range rounds {
		modulus := f.modulus(i)
		a, b = b, (a+f.function(scratch[:], i, b, modulus))%modulus
	}
	return a, b
}

// decrypt maps them back.
func (f *ff1) decrypt(a, b uint64) (left, right uint64) {
	scratch := scratches.Get().(*[aesBlock]byte)
	defer scratches.Put(scratch)
	for i := rounds - 1; i >= 0; i-- {
		modulus := f.modulus(i)
		a, b = (b+modulus-f.function(scratch[:], i, a, modulus))%modulus, a
	}
	return a, b
}

func (f *ff1) modulus(round int) uint64 {
	if round%2 == 0 {
		return f.left
	}
	return f.right
}

// function is what a round adds, below the modulus.
func (f *ff1) function(scratch []byte, round int, half, modulus uint64) uint64 {
	binary.BigEndian.PutUint64(scratch, f.high)
	binary.BigEndian.PutUint64(scratch[8:], f.low^uint64(round)<<f.round^half) //nolint:gosec // 0 to 9
	f.block.Encrypt(scratch, scratch)
	high, low := binary.BigEndian.Uint64(scratch), binary.BigEndian.Uint64(scratch[8:])
	low = high<<(64-f.cut) | low>>f.cut
	return bits.Rem64(high>>f.cut, low, modulus)
}
