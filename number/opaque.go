package number

import (
	"cmp"
	"crypto/aes"
	"fmt"
	"io"
	"log/slog"
)

// Opaque writes values as digits of a fixed width that do not reveal their order, and reads them
// back: a permutation of all numbers of that width, chosen by a secret key and a tweak. It is the
// cipher FF1 of NIST SP 800-38G with AES, over decimal digits, and has the million numbers at least
// that the standard's Revision 1 asks for.
//
// What it hides from readers without the key: as well as AES does, which value a number has, how
// far the values of two numbers are apart, and which of them came first. So a collection of numbers
// does not reveal how many were handed out.
//
// What it does not hide, and what it is not:
//
//   - Equal values have equal numbers and different values different ones, as long as key, width
//     and tweak are the same.
//   - It proves nothing. Every text of that many digits decodes to some value. Where 100,000 of a
//     million numbers are in use, every tenth guess finds one; and a client that may try whether
//     numbers exist finds out in this way what share of them does, and so how many. More digits
//     help, and so does authorization.
//   - A client that can have values of its choice encoded, or numbers decoded, gets a table of as
//     many pairs as it asks for. Six digits are all known after a million.
//   - A number does not show which key it was made with. With another key it decodes to another
//     value, without an error.
//
// It is safe for concurrent use, and shows no key. Its zero value cannot be used.
type Opaque struct {
	cipher *ff1
	digits int
}

// Bounds of an Opaque.
const (
	MinDigits = 6        // fewer numbers than a million are too easily listed
	MaxDigits = MaxWidth // the default: all of them fit into 63 bits
	MaxTweak  = 1024     // bytes
)

// NewOpaque takes a secret key of 16, 24 or 32 bytes (AES-128, -192 or -256), how many digits each
// number has, MinDigits to MaxDigits with 0 for MaxDigits, and a tweak of at most MaxTweak bytes.
// The tweak is no secret: another one makes another permutation, so that equal values of two
// counters have different numbers; give it the counter's name. A change of one of the three gives
// new numbers, and some of them are old numbers of other values. The slices are not kept. The error
// contains no more of the key than its length.
func NewOpaque(key []byte, digits int, tweak []byte) (*Opaque, error) {
	digits = cmp.Or(digits, MaxDigits)
	switch {
	case len(key) != 16 && len(key) != 24 && len(key) != 32:
		return nil, fmt.Errorf("number: a key of %d bytes: 16, 24 or 32", len(key))
	case digits < MinDigits || digits > MaxDigits:
		return nil, fmt.Errorf("number: opaque numbers of %d digits: %d to %d", digits, MinDigits, MaxDigits)
	case len(tweak) > MaxTweak:
		return nil, fmt.Errorf("number: a tweak of %d bytes: %d at most", len(tweak), MaxTweak)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("number: %w", err)
	}
	return &Opaque{newFF1(block, 10, digits, tweak), digits}, nil
}

// Digits is how many digits each number has.
func (o Opaque) Digits() int { return o.digits }

// Max is the largest value that has a number. The smallest is 0.
func (o Opaque) Max() int64 { return largest(o.digits) }

// Encode writes a value as decimal digits, always as many as Digits says. ErrNegative, and ErrWidth
// with the largest value (see TooWideError).
func (o Opaque) Encode(value int64) (string, error) {
	text, err := o.Append(make([]byte, 0, MaxDigits), value)
	return string(text), err
}

// Append appends what Encode writes to dst, without allocating if it fits; nothing if it refuses.
func (o Opaque) Append(dst []byte, value int64) ([]byte, error) {
	if err := check(value, o.Max()); err != nil {
		return dst, err
	}
	n := uint64(value) //nolint:gosec // it was checked
	a, b := o.cipher.encrypt(n/o.cipher.right, n%o.cipher.right)
	return appendDigits(dst, int64(a*o.cipher.right+b), o.digits), nil //nolint:gosec // below 10^digits
}

// Decode reads what Encode writes with the same key, digits and tweak: with others it gets another
// value. ErrSyntax for what is not as many digits as Digits says.
func (o Opaque) Decode(text string) (int64, error) {
	number, ok := readDigits(text)
	if !ok || len(text) != o.digits {
		return 0, fmt.Errorf("%w: %.40q: %d digits", ErrSyntax, text, o.digits)
	}
	n := uint64(number) //nolint:gosec // readDigits has none below 0
	a, b := o.cipher.decrypt(n/o.cipher.right, n%o.cipher.right)
	return int64(a*o.cipher.right + b), nil //nolint:gosec // below 10^digits
}

// String returns how many digits the numbers have, and nothing of the key.
func (o Opaque) String() string { return fmt.Sprintf("opaque numbers of %d digits", o.digits) }

// Format prints what String returns, whatever the verb.
func (o Opaque) Format(state fmt.State, _ rune) { _, _ = io.WriteString(state, o.String()) }

// GoString is String.
func (o Opaque) GoString() string { return o.String() }

// LogValue is String.
func (o Opaque) LogValue() slog.Value { return slog.StringValue(o.String()) }
