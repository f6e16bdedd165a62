package number

import (
	"fmt"
	"strings"
	"time"
)

type field uint8

const (
	year field = iota
	shortYear
	month
	day
	yearDay
	hour
	minute
	weekYear
	week
	fields
	separator // not a field: one character as it is
)

// letters is how a template writes each field, with as many letters as it has digits.
var letters = [fields]string{year: "yyyy", shortYear: "yy", month: "MM", day: "dd", yearDay: "DDD", hour: "HH", minute: "mm",
	weekYear: "YYYY", week: "ww"}

// meant is for users of other notations for dates.
var meant = map[string]string{
	"y": "yyyy", "Y": "yyyy", "YY": "yy", "m": "MM for the month, or mm for the minute", "M": "MM", "d": "dd",
	"DD": "dd for the day of the month, or DDD for that of the year", "D": "DDD",
	"j": "DDD", "H": "HH", "h": "HH", "hh": "HH", "w": "ww", "WW": "ww", "N": "{n}", "nn": "{n}",
}

const (
	fieldNames = "yyyy yy MM dd DDD HH mm, or YYYY ww"
	separators = "- . _ : / T W and space"
)

func isSeparator(c byte) bool { return strings.IndexByte("-._:/TW ", c) >= 0 }

// unit is how long a period is.
type unit uint8

const (
	yearly unit = iota + 1
	monthly
	weekly
	daily
	hourly
	minutely
)

func (u unit) String() string {
	return [...]string{"", "year", "month", "ISO week", "day", "hour", "minute"}[u]
}

const aDay = 1<<year | 1<<month | 1<<day

// units is which fields name a period, by a bit for each. A year of two digits is a year.
var units = map[int]unit{
	1 << year:                      yearly,
	1<<year | 1<<month:             monthly,
	1<<weekYear | 1<<week:          weekly,
	aDay:                           daily,
	1<<year | 1<<yearDay:           daily,
	aDay | 1<<hour:                 hourly,
	1<<year | 1<<yearDay | 1<<hour: hourly,
	aDay | 1<<hour | 1<<minute:     minutely,
	1<<year | 1<<yearDay | 1<<hour | 1<<minute: minutely,
}

func unitOf(seen int) unit {
	if seen&(1<<year) == 0 && seen&(1<<shortYear) != 0 {
		seen ^= 1<<year | 1<<shortYear
	}
	return units[seen]
}

// pattern is a date part: which fields, in which order, with what between them.
type pattern struct {
	text   string
	pieces []piece
	unit   unit
}

// piece is a field, or a separator with its character.
type piece struct {
	field     field
	character byte
}

func (p piece) width() int {
	if p.field == separator {
		return 1
	}
	return len(letters[p.field])
}

// parsePattern reads a date part without its braces.
func parsePattern(text string, position int) (pattern, *fault) {
	p := pattern{text: text}
	seen := 0
	for at := 0; at < len(text); at += p.pieces[len(p.pieces)-1].width() {
		next, wrong := firstPiece(text[at:], position+at)
		if wrong != nil {
			return pattern{}, wrong
		}
		if next.field != separator {
			if seen&(1<<next.field) != 0 {
				return pattern{}, faultAt(position+at, "a second %s", letters[next.field])
			}
			seen |= 1 << next.field
		}
		p.pieces = append(p.pieces, next)
	}
	if len(p.pieces) == 0 {
		return pattern{}, faultAt(position, "nothing between the braces; write {n} for the value, or a date such as {yyyyMMdd}")
	}
	if p.pieces[0].field == separator || p.pieces[len(p.pieces)-1].field == separator {
		return pattern{}, faultAt(position, "%.20q begins or ends with a separator; write it outside of the braces", text)
	}
	p.unit = unitOf(seen)
	if p.unit == 0 {
		return pattern{}, faultAt(position, "%.40q %s", text, lacks(seen))
	}
	return p, nil
}

// firstPiece reads a text's first field, which is a run of one letter, or separator.
func firstPiece(text string, position int) (piece, *fault) {
	length := 1
	for length < len(text) && text[length] == text[0] {
		length++
	}
	run := text[:length]
	for i, known := range letters {
		if run == known {
			return piece{field: field(i)}, nil
		}
	}
	if isSeparator(run[0]) && (len(run) == 1 || run[0] != 'T' && run[0] != 'W') {
		return piece{field: separator, character: run[0]}, nil
	}
	if instead, ok := meant[run]; ok {
		return piece{}, faultAt(position, "%q is no part of a date; write %s", run, instead)
	}
	return piece{}, faultAt(position, "%.20q is no part of a date; write %s, with %s between them, and {n} or {n:6} for the value", text,
		fieldNames, separators)
}

// lacks is why some fields name no period.
func lacks(seen int) string {
	has := func(f field) bool { return seen&(1<<f) != 0 }
	switch {
	case has(minute) && !has(hour):
		return "has a minute without its hour; write HH to it, or MM for the month"
	case has(week) && has(year), has(week) && has(shortYear):
		return "has a week with a calendar year, and around New Year it belongs to another; write YYYY, the week's own year"
	case has(weekYear) && !has(week):
		return "has the year that an ISO week belongs to, without a week; write yyyy, the calendar's year"
	case has(week) && !has(weekYear):
		return "comes back each year; write YYYY to it, the year that an ISO week belongs to"
	case !has(week) && !has(year) && !has(shortYear):
		return "comes back each year; write yyyy to it"
	case has(year) && has(shortYear):
		return "has two years; write yyyy or yy"
	}
	return "names no period; write yyyy, yyyy MM, yyyy MM dd, yyyy DDD, a day with HH or HH mm, or YYYY ww, in any order"
}

// civil is a moment as a zone's calendar and clock show it, by field.
type civil [fields]int

func civilOf(at time.Time) civil {
	y, m, d := at.Date()
	wy, w := at.ISOWeek()
	return civil{year: y, shortYear: y % 100, month: int(m), day: d, yearDay: at.YearDay(), hour: at.Hour(), minute: at.Minute(),
		weekYear: wy, week: w}
}

// The years that can be written. A zero time.Time, such as one that was not set, is before them.
const (
	firstYear, lastYear           = 1970, 9999
	firstShortYear, lastShortYear = 2000, 2099
)

// civil is what a moment shows, if the pattern can write it.
func (p pattern) civil(at time.Time) (civil, error) {
	c := civilOf(at)
	for _, piece := range p.pieces {
		shown, first, last := c[year], firstYear, lastYear
		switch piece.field {
		case shortYear:
			first, last = firstShortYear, lastShortYear
		case weekYear:
			shown = c[weekYear]
		case year:
		default:
			continue
		}
		if shown < first || shown > last {
			return c, fmt.Errorf("%w: the year %d in {%s}: %d to %d", ErrTime, shown, p.text, first, last)
		}
	}
	return c, nil
}

func (p pattern) append(dst []byte, c civil) []byte {
	for _, piece := range p.pieces {
		if piece.field == separator {
			dst = append(dst, piece.character)
		} else {
			dst = appendDigits(dst, int64(c[piece.field]), piece.width())
		}
	}
	return dst
}
