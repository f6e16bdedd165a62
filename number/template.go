package number

import (
	"errors"
	"fmt"
	"time"
)

// Template is how a counter's values are written for people: text, the value, and the date if there
// is to be one. ORD-{yyyyMMdd}-{n:6} writes 42 on 21 November 2026 as ORD-20261121-000042.
//
//   - Text is A–Z a–z 0–9 . _ : ~ @ - / # and space, though no space at the beginning or the end;
//     {{ and }} are braces.
//   - {n} is the value as it is, {n:6} the value with zeros in front, 6 digits always, 1 to
//     MaxWidth. There is exactly one.
//   - A date part is made of yyyy (1970 to 9999) or yy (2000 to 2099), MM, dd or DDD (day of the
//     year), and HH, or of an ISO week ww and its year YYYY, in any order, with - . _ : / T W and
//     space between them: {yyyyMMdd}, {dd.MM.yyyy}, {yy}, {yyyyDDD}, {yyyy-MM-ddTHH}, {YYYY-Www}.
//     It names one period from its year down to its smallest field, so there is at most one date
//     part, and none that comes back each year.
//
// All but the value has a fixed width, and that has no zeros in front if its own is not fixed: two
// values, or two periods, never make the same text. The zero value is no template.
type Template struct {
	text  string
	parts []part
	date  *pattern // of its date part, if it has one
	width int      // of the value; 0 = as many digits as it has
}

// MaxTemplate is how long a template can be, in characters.
const MaxTemplate = 100

// ParseTemplate reads a template. The error, an ErrTemplate, names the position of the fault and
// what to write instead.
func ParseTemplate(text string) (Template, error) {
	t, wrong := parseTemplate(text)
	if wrong != nil {
		return Template{}, fmt.Errorf("%w: %w", ErrTemplate, wrong)
	}
	return t, nil
}

// MustTemplate is ParseTemplate for constant texts in a program: it panics if that fails.
func MustTemplate(text string) Template {
	t, err := ParseTemplate(text)
	if err != nil {
		panic(err)
	}
	return t
}

func parseTemplate(text string) (Template, *fault) {
	if len(text) > MaxTemplate {
		return Template{}, faultAt(MaxTemplate+1, "%d characters are the most", MaxTemplate)
	}
	parts, wrong := scan(text)
	if wrong != nil {
		return Template{}, wrong
	}
	t := Template{text: text, parts: parts}
	values := 0
	for i, p := range parts {
		switch p.kind {
		case literalPart:
		case valuePart:
			if values++; values > 1 {
				return Template{}, faultAt(p.position, "a second value; write {n} once")
			}
			t.width = p.width
		case datePart:
			if t.date != nil {
				return Template{}, faultAt(p.position, "a second date; write all of it into one pair of braces, as in {yyyy-MM}")
			}
			t.date = &parts[i].date
		}
	}
	switch {
	case values == 0:
		return Template{}, faultAt(0, "it has no value; write {n}, or {n:6} for six digits")
	case text[0] == ' ':
		return Template{}, faultAt(1, "a space at the beginning gets lost; leave it out")
	case text[len(text)-1] == ' ':
		return Template{}, faultAt(len(text), "a space at the end gets lost; leave it out")
	}
	return t, nil
}

// String is the template as it was parsed.
func (t Template) String() string { return t.text }

// Max is the largest value the template writes: 999999 with {n:6}, 2^63-1 with {n}. The least is 0.
func (t Template) Max() int64 { return largest(t.width) }

// Format writes a value, with the date that the moment has in its own zone: give it the moment and
// the zone that the value's calendar key was asked with. Without a date part the moment does not
// matter. ErrNegative, ErrWidth with the largest value (see TooWideError), and ErrTime for years
// that cannot be written.
func (t Template) Format(value int64, at time.Time) (string, error) {
	text, err := t.Append(nil, value, at)
	return string(text), err
}

// Append appends what Format writes to dst, without allocating if it fits; nothing if it refuses.
func (t Template) Append(dst []byte, value int64, at time.Time) ([]byte, error) {
	if err := t.check(); err != nil {
		return dst, err
	}
	if err := check(value, t.Max()); err != nil {
		return dst, err
	}
	var shown civil
	if t.date != nil {
		var err error
		if shown, err = t.date.civil(at); err != nil {
			return dst, err
		}
	}
	for i := range t.parts {
		switch p := &t.parts[i]; p.kind {
		case literalPart:
			dst = append(dst, p.literal...)
		case valuePart:
			dst = appendDigits(dst, value, t.width)
		case datePart:
			dst = p.date.append(dst, shown)
		}
	}
	return dst, nil
}

func (t Template) check() error {
	if len(t.parts) == 0 {
		return fmt.Errorf("%w: %w", ErrTemplate, faultAt(0, "it is empty; ParseTemplate makes one"))
	}
	return nil
}

// Period is the period that the date part names at a moment in a zone (nil is UTC): its label is
// what the date part writes. Without a date part it is the zero Period, which has no label and no
// end. ErrTime for years that cannot be written.
func (t Template) Period(at time.Time, zone *time.Location) (Period, error) {
	if t.date == nil {
		return Period{}, t.check()
	}
	return t.date.at(at, orUTC(zone))
}

// Fits reports whether values that are counted anew in each of a key's periods get different texts
// from this template: its date part has to distinguish the key's periods, as {yyyyMMdd} does for a
// key of days or of months. That holds if both are asked with the same moment in the same zone. The
// error, an ErrCoarse, says what to change.
func (t Template) Fits(key CalendarKey) error {
	if err := errors.Join(t.check(), key.check()); err != nil {
		return err
	}
	switch {
	case t.date == nil:
		return fmt.Errorf("%w: %s counts anew each %s, and %s has no date; write {%s} into it", ErrCoarse, key, key.date.unit,
			t, key.date.text)
	case !contains[t.date.unit][key.date.unit]:
		return fmt.Errorf("%w: %s counts anew each %s, and {%s} can be the same in two of them; write {%s}", ErrCoarse, key, key.date.unit,
			t.date.text, key.date.text)
	}
	return nil
}

// contains returns the periods in one of which a unit always lies: an ISO week in no month or year.
var contains = map[unit]map[unit]bool{
	yearly:   {yearly: true},
	monthly:  {yearly: true, monthly: true},
	weekly:   {weekly: true},
	daily:    {yearly: true, monthly: true, weekly: true, daily: true},
	hourly:   {yearly: true, monthly: true, weekly: true, daily: true, hourly: true},
	minutely: {yearly: true, monthly: true, weekly: true, daily: true, hourly: true, minutely: true},
}

func orUTC(zone *time.Location) *time.Location {
	if zone == nil {
		return time.UTC
	}
	return zone
}
