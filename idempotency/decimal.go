package idempotency

import (
	"bytes"
	"strconv"
)

// exactNumbers returns a JSON text without white space with its numbers in their canonical form.
func exactNumbers(text []byte) []byte {
	exact := make([]byte, 0, len(text))
	for len(text) > 0 {
		switch c := text[0]; {
		case c == '"':
			n := stringLength(text)
			exact, text = append(exact, text[:n]...), text[n:]
		case c == '-' || '0' <= c && c <= '9':
			n := len(text) - len(bytes.TrimLeft(text, "+-.0123456789eE"))
			exact, text = appendDecimal(exact, text[:n]), text[n:]
		default:
			exact, text = append(exact, c), text[1:]
		}
	}
	return exact
}

// stringLength is how long the string is that a JSON text begins with.
func stringLength(text []byte) int {
	for i := 1; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(text)
}

// appendDecimal appends a JSON number as RFC 8785 writes it, but with all its digits: two numbers
// are written alike if they are the same decimal number, and only then. One whose exponent is
// beyond 64 bits is written as it is.
func appendDecimal(to, number []byte) []byte {
	unsigned, negative := bytes.CutPrefix(number, []byte("-"))
	mantissa, exponent := unsigned, []byte("0")
	if at := bytes.IndexAny(unsigned, "eE"); at >= 0 {
		mantissa, exponent = unsigned[:at], unsigned[at+1:]
	}
	whole, fraction, _ := bytes.Cut(mantissa, []byte("."))
	digits := append(bytes.Clone(whole), fraction...)
	power, err := strconv.ParseInt(string(exponent), 10, 64)
	if err != nil || power > 1<<62 || power < -1<<62 {
		return append(to, number...)
	}
	point := len(whole) // digits in front of the decimal point
	significant := bytes.TrimLeft(digits, "0")
	point -= len(digits) - len(significant)
	significant = bytes.TrimRight(significant, "0")
	if len(significant) == 0 {
		return append(to, '0')
	}
	if negative {
		to = append(to, '-')
	}
	return appendPlaced(to, significant, power+int64(point))
}

// appendPlaced appends the number 0.digits × 10^point, in the form that ECMAScript gives a number.
func appendPlaced(to, digits []byte, point int64) []byte {
	n := int64(len(digits))
	switch {
	case n <= point && point <= 21:
		return append(append(to, digits...), bytes.Repeat([]byte("0"), int(point-n))...)
	case 0 < point && point <= 21:
		return append(append(append(to, digits[:point]...), '.'), digits[point:]...)
	case -6 < point && point <= 0:
		return append(append(append(to, "0."...), bytes.Repeat([]byte("0"), int(-point))...), digits...)
	}
	to = append(to, digits[0])
	if n > 1 {
		to = append(append(to, '.'), digits[1:]...)
	}
	to = append(to, 'e')
	if point > 0 {
		to = append(to, '+')
	}
	return strconv.AppendInt(to, point-1, 10)
}
