package number

import (
	"math"
	"strconv"
)

// MaxWidth is the widest value with zeros in front, in digits.
const MaxWidth = 18

// largest is the largest value of so many digits, and of 0 for as many as it has.
func largest(width int) int64 {
	if width == 0 {
		return math.MaxInt64
	}
	power := int64(1)
	for range width {
		power *= 10
	}
	return power - 1
}

// appendDigits appends a number that is not negative, with zeros in front up to a width.
func appendDigits(dst []byte, n int64, width int) []byte {
	var buffer [20]byte
	digits := strconv.AppendInt(buffer[:0], n, 10)
	for range width - len(digits) {
		dst = append(dst, '0')
	}
	return append(dst, digits...)
}

// readDigits reads decimal digits, at least one and nothing else, up to 2^63-1.
func readDigits(text string) (n int64, ok bool) {
	for i := range len(text) {
		digit := int64(text[i]) - '0'
		if digit < 0 || digit > 9 || n > (math.MaxInt64-digit)/10 {
			return 0, false
		}
		n = n*10 + digit
	}
	return n, text != ""
}
