package snowflake

import (
	"fmt"
	"time"
)

// Timed writes the id as a time and what is below the timestamp: yyyyMMddHHmmssSSS in UTC, and
// datacenter, worker id and sequence as one number with zeros in front, as wide as the layout's
// largest: 24 digits with 41/10/12. The texts of one layout and epoch sort like the ids. An id that
// is larger than the layout's, or of a time beyond the year 9999, is refused with ErrRange.
func (id ID) Timed(layout Layout, epoch time.Time) (string, error) {
	text, err := id.appendTimed(nil, layout, epoch)
	return string(text), err
}

const timedPrefix = len("yyyyMMddHHmmssSSS")

func (id ID) appendTimed(dst []byte, layout Layout, epoch time.Time) ([]byte, error) {
	if err := layout.check(); err != nil {
		return dst, err
	}
	if id < 0 || id > layout.Max() {
		return dst, fmt.Errorf("%w: %d: layout %v has 0 to %d", ErrRange, int64(id), layout, int64(layout.Max()))
	}
	moment := layout.start(epoch, int64(id)>>layout.low())
	if moment.Unix() < firstTimed || moment.Unix() >= endTimed {
		return dst, fmt.Errorf("%w: %d is of a time beyond the years 0 to 9999", ErrRange, int64(id))
	}
	dst = moment.AppendFormat(dst, "20060102150405")
	dst = appendDigits(dst, ID(moment.Nanosecond()/int(time.Millisecond)), decimal, 3)
	return appendDigits(dst, id&(1<<layout.low()-1), decimal, layout.restWidth()), nil
}

// The years that four digits can write, in seconds since 1970.
var (
	firstTimed = time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC).Unix()
	endTimed   = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC).Unix()
)

// restWidth is how many digits the largest number below the timestamp has.
func (l Layout) restWidth() int {
	width := 1
	for n := int64(1)<<l.low() - 1; n > 9; n /= 10 {
		width++
	}
	return width
}

// ParseTimed reads what Timed writes with the same layout and epoch, and nothing else. ErrSyntax,
// or ErrRange for what the layout cannot stamp.
func ParseTimed(text string, layout Layout, epoch time.Time) (ID, error) {
	if err := layout.check(); err != nil {
		return 0, err
	}
	if len(text) != timedPrefix+layout.restWidth() {
		return 0, fmt.Errorf("%w: %.60q: %d digits", ErrSyntax, text, timedPrefix+layout.restWidth())
	}
	moment, err := time.Parse("20060102150405.000", text[:14]+"."+text[14:timedPrefix])
	if err != nil {
		return 0, fmt.Errorf("%w: %.60q: yyyyMMddHHmmssSSS and a number", ErrSyntax, text)
	}
	rest, err := parseDigits(text[timedPrefix:], decimal, false)
	if err != nil {
		return 0, err
	}
	// An epoch between two milliseconds has its units begin between two, and Timed cuts that off.
	unit, _ := layout.units(epoch.Truncate(time.Millisecond), moment)
	if unit < 0 || unit >= 1<<layout.Timestamp || rest >= 1<<layout.low() {
		return 0, fmt.Errorf("%w: %.60q with layout %v since %v", ErrRange, text, layout, epoch)
	}
	id := ID(unit<<layout.low()) | rest
	if again, err := id.Timed(layout, epoch); err != nil || again != text {
		return 0, fmt.Errorf("%w: %.60q is between two units of layout %v", ErrSyntax, text, layout)
	}
	return id, nil
}
