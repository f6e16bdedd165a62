package number

import (
	"iter"
	"math"
	"time"
)

// Period is a year, month, ISO week, day, hour or minute on a zone's clock, under its date part's
// text.
//
// It reaches from the first moment that shows the label to the last, so that every moment of a
// label has the same period: a day has 23 hours where the clock is set forward (and begins at one
// o'clock where midnight is skipped), and 25 where it is set back; the hour that is shown twice
// then is one period of two hours. Periods follow each other without a gap. They overlap only where
// a clock is set back over the border between them.
type Period struct {
	Label string
	From  time.Time // the first moment
	Until time.Time // the first time after the last
}

// at finds the period of a moment.
func (p pattern) at(moment time.Time, zone *time.Location) (Period, error) {
	c, err := p.civil(moment.In(zone))
	if err != nil {
		return Period{}, err
	}
	start, end := p.span(c)
	from, until := shown(start, end, zone)
	return Period{Label: string(p.append(nil, c)), From: time.Unix(from, 0).In(zone), Until: time.Unix(until, 0).In(zone)}, nil
}

// span returns the clock's two readings around a date, in seconds since 1970 as if in UTC.
func (p pattern) span(c civil) (start, end int64) {
	clock := func(y, m, d, h int) int64 { return time.Date(y, time.Month(m), d, h, 0, 0, 0, time.UTC).Unix() }
	switch p.unit {
	case yearly:
		return clock(c[year], 1, 1, 0), clock(c[year]+1, 1, 1, 0)
	case monthly:
		return clock(c[year], c[month], 1, 0), clock(c[year], c[month]+1, 1, 0)
	case weekly:
		monday := mondayOf(c[weekYear], c[week])
		return clock(c[weekYear], 1, monday, 0), clock(c[weekYear], 1, monday+7, 0)
	case hourly:
		return clock(c[year], c[month], c[day], c[hour]), clock(c[year], c[month], c[day], c[hour]+1)
	case minutely:
		start = clock(c[year], c[month], c[day], c[hour]) + int64(c[minute])*60
		return start, start + 60
	}
	return clock(c[year], c[month], c[day], 0), clock(c[year], c[month], c[day]+1, 0)
}

// mondayOf is the first day of an ISO week, counted from January 1. The 4th is always in week 1.
func mondayOf(year, week int) int {
	fourth := time.Date(year, time.January, 4, 0, 0, 0, 0, time.UTC).Weekday()
	return 4 - (int(fourth)+6)%7 + 7*(week-1)
}

// shown finds the first moment at which a zone's clock shows a reading in [start, end), and the
// moment after the last, in seconds since 1970. Where there is none, from is not before until.
func shown(start, end int64, zone *time.Location) (from, until int64) {
	from, until = math.MaxInt64, math.MinInt64
	for s := range stretches(start-reach, end+reach, zone) {
		first, behind := max(s.from, start-s.offset), min(s.until, end-s.offset)
		if first < behind {
			from, until = min(from, first), max(until, behind)
		}
	}
	return from, until
}

// reach is more than any zone is away from UTC, in seconds.
const reach = 2 * secondsPerDay

const secondsPerDay = 24 * 60 * 60

// stretch is some time without a change of the clock, in seconds since 1970.
type stretch struct{ from, until, offset int64 }

// stretches walks through a zone's changes from one moment to another.
func stretches(from, until int64, zone *time.Location) iter.Seq[stretch] {
	return func(yield func(stretch) bool) {
		for from < until {
			at := time.Unix(from, 0).In(zone)
			_, offset := at.Zone()
			next := int64(math.MaxInt64)
			if _, end := at.ZoneBounds(); !end.IsZero() {
				next = end.Unix()
			}
			if next <= from {
				// Where only a rule defines the changes, ZoneBounds ends every year after 365 days.
				// No zone changes its clock on the last day of a leap year.
				next = from - from%secondsPerDay + secondsPerDay
			}
			if !yield(stretch{from, next, int64(offset)}) {
				return
			}
			from = next
		}
	}
}
