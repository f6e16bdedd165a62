package number

import (
	"crypto/aes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/big"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// samples are the sample vectors that NIST publishes for FF1 with SP 800-38G, in their order.
var samples = []struct {
	key, tweak    string
	radix         int
	plain, cipher string
}{
	{sampleKey[:32], "", 10, "0123456789", "2433477484"},
	{sampleKey[:32], "39383736353433323130", 10, "0123456789", "6124200773"},
	{sampleKey[:32], "3737373770717273373737", 36, "0123456789abcdefghi", "a9tv40mll9kdu509eum"},
	{sampleKey[:48], "", 10, "0123456789", "2830668132"},
	{sampleKey[:48], "39383736353433323130", 10, "0123456789", "2496655549"},
	{sampleKey[:48], "3737373770717273373737", 36, "0123456789abcdefghi", "xbj3kv35jrawxv32ysr"},
	{sampleKey[:64], "", 10, "0123456789", "6657667009"},
	{sampleKey[:64], "39383736353433323130", 10, "0123456789", "1001623463"},
	{sampleKey[:64], "3737373770717273373737", 36, "0123456789abcdefghi", "xs8a0azh2avyalyzuwd"},
}

const sampleKey = "2b7e151628aed2a6abf7158809cf4f3cef4359d8d580aa4f7f036d6f04fc6a94"

func TestFF1WritesTheVectorsOfTheStandard(t *testing.T) {
	for i, sample := range samples {
		key, tweak := bytes(t, sample.key), bytes(t, sample.tweak)
		block, err := aes.NewCipher(key)
		if err != nil {
			t.Fatalf("sample %d: AES with its key: %v", i+1, err)
		}
		half := len(sample.plain) / 2
		f := newFF1(block, uint32(sample.radix), len(sample.plain), tweak)
		a, b := f.encrypt(numeral(t, sample.plain[:half], sample.radix), numeral(t, sample.plain[half:], sample.radix))
		if a != numeral(t, sample.cipher[:half], sample.radix) || b != numeral(t, sample.cipher[half:], sample.radix) {
			t.Errorf("sample %d: %s and %s", i+1, strconv.FormatUint(a, sample.radix), strconv.FormatUint(b, sample.radix))
		}
		if a, b = f.decrypt(a, b); a != numeral(t, sample.plain[:half], sample.radix) || b != numeral(t, sample.plain[half:], sample.radix) {
			t.Errorf("sample %d back: %s and %s", i+1, strconv.FormatUint(a, sample.radix), strconv.FormatUint(b, sample.radix))
		}
		if slow := slowFF1(t, key, tweak, sample.radix, sample.plain); slow != sample.cipher {
			t.Errorf("sample %d: the slow one says %s", i+1, slow)
		}
		if sample.radix != 10 {
			continue
		}
		opaque, err := NewOpaque(key, len(sample.plain), tweak)
		if err != nil {
			t.Fatalf("sample %d: NewOpaque: %v", i+1, err)
		}
		if got, err := opaque.Encode(int64(numeral(t, sample.plain, 10))); got != sample.cipher || err != nil {
			t.Errorf("sample %d: opaque %s, %v", i+1, got, err)
		}
		if got, err := opaque.Decode(sample.cipher); got != int64(numeral(t, sample.plain, 10)) || err != nil {
			t.Errorf("sample %d back: opaque %d, %v", i+1, got, err)
		}
	}
}

// The samples have two lengths and short tweaks. For all others there is a slow one, which follows
// the standard's steps to the letter.
func TestFF1AgreesWithASlowOneForAllLengths(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.SampledFrom([]int{16, 24, 32}).Draw(t, "key size")
		key := rapid.SliceOfN(rapid.Byte(), size, size).Draw(t, "key")
		tweak := rapid.SliceOfN(rapid.Byte(), 0, 70).Draw(t, "tweak")
		digits := rapid.IntRange(MinDigits, MaxDigits).Draw(t, "digits")
		opaque, err := NewOpaque(key, digits, tweak)
		if err != nil {
			t.Fatalf("NewOpaque of %d digits: %v", digits, err)
		}
		value := rapid.Int64Range(0, opaque.Max()).Draw(t, "n")
		got, err := opaque.Encode(value)
		if slow := slowFF1(t, key, tweak, 10, fmt.Sprintf("%0*d", digits, value)); got != slow || err != nil {
			t.Fatalf("%d: %s, %v, and the slow one says %s", value, got, err, slow)
		}
		if back, err := opaque.Decode(got); back != value || err != nil {
			t.Fatalf("%s back: %d, %v, want %d", got, back, err, value)
		}
	})
}

type tester interface {
	Helper()
	Fatalf(format string, args ...any)
}

func bytes(t tester, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(text)
	if err != nil {
		t.Fatalf("%q is no hex: %v", text, err)
	}
	return b
}

func numeral(t tester, text string, radix int) uint64 {
	t.Helper()
	n, err := strconv.ParseUint(text, radix, 64)
	if err != nil {
		t.Fatalf("%q is no number: %v", text, err)
	}
	return n
}

// slowFF1 is FF1.Encrypt of the standard, step by step, over texts and big numbers.
func slowFF1(t tester, key, tweak []byte, radix int, text string) string {
	t.Helper()
	block, err := aes.NewCipher(key)
	if err != nil {
		t.Fatalf("AES with a key of %d bytes: %v", len(key), err)
	}
	number := func(text string) *big.Int {
		n, ok := new(big.Int).SetString(text, radix)
		if !ok {
			t.Fatalf("%q is no number", text)
		}
		return n
	}
	power := func(digits int) *big.Int {
		return new(big.Int).Exp(big.NewInt(int64(radix)), big.NewInt(int64(digits)), nil)
	}
	u, v := len(text)/2, len(text)-len(text)/2
	a, b := text[:u], text[u:]
	bytesOfB := (new(big.Int).Sub(power(v), big.NewInt(1)).BitLen() + 7) / 8
	d := 4*((bytesOfB+3)/4) + 4
	p := []byte{1, 2, 1, 0, 0, byte(radix), 10, byte(u)}
	p = binary.BigEndian.AppendUint32(p, uint32(len(text)))
	p = binary.BigEndian.AppendUint32(p, uint32(len(tweak)))
	for i := range 10 {
		q := append([]byte{}, tweak...)
		for (len(q)+bytesOfB+1)%16 != 0 {
			q = append(q, 0)
		}
		q = append(q, byte(i))
		q = append(q, number(b).FillBytes(make([]byte, bytesOfB))...)
		r := make([]byte, 16)
		for at, input := 0, append(append([]byte{}, p...), q...); at < len(input); at += 16 {
			for j := range r {
				r[j] ^= input[at+j]
			}
			block.Encrypt(r, r)
		}
		m := u
		if i%2 == 1 {
			m = v
		}
		c := new(big.Int).SetBytes(r[:d]) // d is 16 at most for what is tried here
		c.Add(c, number(a)).Mod(c, power(m))
		written := c.Text(radix)
		a, b = b, strings.Repeat("0", m-len(written))+written
	}
	return a + b
}
