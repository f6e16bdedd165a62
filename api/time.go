package api

import (
	"fmt"
	"time"
)

// Time is a time in a request or an answer. It is written as RFC 3339 in UTC with three digits of a
// second: some languages read 22.16Z as 22 s and 16 ms.
type Time struct{ time.Time }

// At returns a time as answers have it.
func At(t time.Time) Time { return Time{t} }

// TimeFormat is the layout of every time that is written, for [time.Time.Format] in UTC.
const TimeFormat = "2006-01-02T15:04:05.000Z07:00"

// MarshalJSON writes the time. It fails for a year that RFC 3339 cannot have.
func (t Time) MarshalJSON() ([]byte, error) {
	at := t.UTC()
	if year := at.Year(); year < 0 || year > 9999 {
		return nil, fmt.Errorf("api: a time of the year %d: RFC 3339 has the years 0 to 9999", year)
	}
	return at.AppendFormat(make([]byte, 0, len(TimeFormat)+2), `"`+TimeFormat+`"`), nil
}
