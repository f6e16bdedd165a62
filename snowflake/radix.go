package snowflake

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// alphabet is the digits of a number's notation, and what each byte is worth in it.
type alphabet struct {
	digits string
	worth  [256]int8 // -1 = none
}

func newAlphabet(digits string) *alphabet {
	a := &alphabet{digits: digits}
	for i := range a.worth {
		a.worth[i] = -1
	}
	for i := range len(digits) {
		a.worth[digits[i]] = int8(i)
	}
	return a
}

var (
	decimal   = newAlphabet("0123456789")
	base36    = newAlphabet("0123456789abcdefghijklmnopqrstuvwxyz")
	base62    = newAlphabet("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")
	crockford = newCrockford()
)

// newCrockford is Douglas Crockford's base 32: without I, L, O and U, but I and L are read as 1 and
// O as 0, and lower case is read like upper case.
func newCrockford() *alphabet {
	a := newAlphabet("0123456789ABCDEFGHJKMNPQRSTVWXYZ")
	for _, c := range []byte("IL") {
		a.worth[c] = 1
	}
	a.worth['O'] = 0
	for c := byte('A'); c <= 'Z'; c++ {
		a.worth[c+'a'-'A'] = a.worth[c]
	}
	return a
}

// appendDigits writes an id that is not negative, from the end of a buffer to its front.
func appendDigits(dst []byte, id ID, a *alphabet, width int) []byte {
	var buffer [64]byte
	at, n, base := len(buffer), uint64(id), uint64(len(a.digits)) //nolint:gosec // it was checked
	for n > 0 || at == len(buffer) {
		at--
		buffer[at] = a.digits[n%base]
		n /= base
	}
	for range width - (len(buffer) - at) {
		dst = append(dst, a.digits[0])
	}
	return append(dst, buffer[at:]...)
}

// parseDigits reads digits. With strict it takes only what appendDigits writes: no zeros in front.
func parseDigits(text string, a *alphabet, strict bool) (ID, error) {
	if text == "" || strict && len(text) > 1 && text[0] == a.digits[0] {
		return 0, fmt.Errorf("%w: %.40q", ErrSyntax, text)
	}
	base := int64(len(a.digits))
	var n int64
	overflow := false
	for i := range len(text) {
		digit := int64(a.worth[text[i]])
		if digit < 0 {
			return 0, fmt.Errorf("%w: %.40q", ErrSyntax, text)
		}
		overflow = overflow || n > (math.MaxInt64-digit)/base
		n = n*base + digit
	}
	if overflow {
		return 0, fmt.Errorf("%w: %.40q is more than 2^63-1", ErrRange, text)
	}
	return ID(n), nil
}

// Padded writes the id in decimal with zeros in front, width digits in all, 1 to MaxWidth. ErrRange
// for more digits, or a negative one: the text never grows, so it sorts as ids do.
func (id ID) Padded(width int) (string, error) {
	text, err := id.appendPadded(nil, width)
	return string(text), err
}

// MaxWidth is the widest padding. 19 digits hold every id.
const MaxWidth = 64

func (id ID) appendPadded(dst []byte, width int) ([]byte, error) {
	if width < 1 || width > MaxWidth {
		return dst, fmt.Errorf("%w: a width of %d: 1 to %d", ErrRange, width, MaxWidth)
	}
	if err := id.check(); err != nil {
		return dst, err
	}
	before := len(dst)
	text := appendDigits(dst, id, decimal, width)
	if len(text)-before > width {
		return dst, fmt.Errorf("%w: %d has more than %d digits", ErrRange, int64(id), width)
	}
	return text, nil
}

// ParsePadded reads what Padded writes with the same width. ErrSyntax, or ErrRange above 2^63-1.
func ParsePadded(text string, width int) (ID, error) {
	if len(text) != width || width > MaxWidth {
		return 0, fmt.Errorf("%w: %.40q: %d digits", ErrSyntax, text, width)
	}
	return parseDigits(text, decimal, false)
}

// in writes the id in an alphabet, and what is no id as a signed decimal, which no parser takes.
func (id ID) in(a *alphabet) string {
	if id < 0 {
		return strconv.FormatInt(int64(id), 10)
	}
	return string(appendDigits(make([]byte, 0, 13), id, a, 0))
}

// Base36 writes the id with the digits 0-9a-z, at most 13.
func (id ID) Base36() string { return id.in(base36) }

// Base62 writes the id with the digits 0-9A-Za-z, at most 11. As bytes they are in this order, so
// texts of equal length sort like the ids.
func (id ID) Base62() string { return id.in(base62) }

// Base32 writes the id in Crockford's base 32, in upper case, at most 13 digits.
func (id ID) Base32() string { return id.in(crockford) }

// ParseBase36 reads what Base36 writes, and nothing else. ErrSyntax, or ErrRange above 2^63-1.
func ParseBase36(text string) (ID, error) { return parseDigits(text, base36, true) }

// ParseBase62 reads what Base62 writes, and nothing else. ErrSyntax, or ErrRange above 2^63-1.
func ParseBase62(text string) (ID, error) { return parseDigits(text, base62, true) }

// ParseBase32 reads Crockford's base 32 as people write it down: lower case is as good as upper
// case, I and L are 1, O is 0, zeros may stand in front and hyphens between the digits; at most 64
// characters. ErrSyntax, or ErrRange for more than 2^63-1.
func ParseBase32(text string) (ID, error) {
	if len(text) > MaxWidth || strings.HasPrefix(text, "-") || strings.HasSuffix(text, "-") {
		return 0, fmt.Errorf("%w: %.40q", ErrSyntax, text)
	}
	return parseDigits(strings.ReplaceAll(text, "-", ""), crockford, false)
}
