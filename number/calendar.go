package number

import (
	"fmt"
	"time"
)

// CalendarKey is the key of a counter that begins anew with each period of the calendar:
// orders:{yyyyMMdd} is the counter orders:20261121 on 21 November 2026 on the clock of the key's
// zone, and another one on the next day. The zero value is no key.
//
// A key is written as a [Template] is, with one date part and without a value, and its names are
// names of counters. No name has a brace, so a text with one can only be a calendar key.
type CalendarKey struct {
	text          string
	before, after string // the date part
	date          pattern
	zone          *time.Location
}

// MaxName is how long a counter's name can be, in characters.
const MaxName = 200

// ParseCalendarKey reads a key and gives it a zone; nil is UTC. Its names are 1 to MaxName
// characters of A–Z a–z 0–9 . _ : ~ @ -. The error, an ErrKey, names the position of the fault and
// what to write instead.
func ParseCalendarKey(text string, zone *time.Location) (CalendarKey, error) {
	k, wrong := parseKey(text, orUTC(zone))
	if wrong != nil {
		return CalendarKey{}, fmt.Errorf("%w: %w", ErrKey, wrong)
	}
	return k, nil
}

func parseKey(text string, zone *time.Location) (CalendarKey, *fault) {
	if length := len(text) - len("{}"); length > MaxName { // a date is as long as what it writes
		return CalendarKey{}, faultAt(0, "its names would have %d characters; %d are the most", length, MaxName)
	}
	parts, wrong := scan(text)
	if wrong != nil {
		return CalendarKey{}, wrong
	}
	k := CalendarKey{text: text, zone: zone}
	for _, p := range parts {
		switch {
		case p.kind == valuePart:
			return CalendarKey{}, faultAt(p.position, "a key has no value; write {n} into a template")
		case p.kind == datePart && k.date.unit != 0:
			return CalendarKey{}, faultAt(p.position, "a second date; write all of it into one pair of braces, as in {yyyy-MM}")
		case p.kind == datePart:
			k.date = p.date
		case k.date.unit == 0:
			k.before = p.literal
		default:
			k.after = p.literal
		}
		if wrong := nameFault(p); wrong != nil {
			return CalendarKey{}, wrong
		}
	}
	if k.date.unit == 0 {
		return CalendarKey{}, faultAt(0, "it has no date; write one such as {yyyyMMdd} into it")
	}
	return k, nil
}

// nameFault is what of a part cannot stand in a counter's name.
func nameFault(p part) *fault {
	text := []byte(p.literal)
	for _, piece := range p.date.pieces {
		if piece.field == separator {
			text = append(text, piece.character)
		}
	}
	for _, c := range text {
		if !isName(c) {
			return faultAt(p.position, "%q cannot stand in a counter's name; those are A–Z a–z 0–9 . _ : ~ @ -", c)
		}
	}
	return nil
}

// String is the key as it was parsed.
func (k CalendarKey) String() string { return k.text }

// Zone is the zone whose clock and calendar the key follows.
func (k CalendarKey) Zone() *time.Location { return orUTC(k.zone) }

// At is the counter's name at a time, and the period in which it is the name. It is the same for
// every time of a label, so that all processes agree; where a clock is set back over the period's
// end, times before Until can have another name, so ask for each value anew. ErrTime for years that
// cannot be written.
func (k CalendarKey) At(at time.Time) (name string, period Period, err error) {
	if err := k.check(); err != nil {
		return "", Period{}, err
	}
	period, err = k.date.at(at, k.zone)
	if err != nil {
		return "", Period{}, err
	}
	return k.before + period.Label + k.after, period, nil
}

func (k CalendarKey) check() error {
	if k.date.unit == 0 {
		return fmt.Errorf("%w: %w", ErrKey, faultAt(0, "it is empty; ParseCalendarKey makes one"))
	}
	return nil
}
