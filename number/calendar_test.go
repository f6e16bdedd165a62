package number_test

import (
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/number"
)

func TestCalendarKeysNameACounterForEachPeriod(t *testing.T) {
	berlin := zone(t, "Europe/Berlin")
	for _, row := range []struct {
		key         string
		zone        *time.Location
		at, name    string
		from, until string
	}{
		{"orders:{yyyyMMdd}", nil, "2026-11-21T23:30:00Z", "orders:20261121", "2026-11-21T00:00:00Z", "2026-11-22T00:00:00Z"},
		{"orders:{yyyyMMdd}", berlin, "2026-11-21T23:30:00Z", "orders:20261122", "2026-11-22T00:00:00+01:00", "2026-11-23T00:00:00+01:00"},
		{"{yyyy}.orders", berlin, "2026-12-31T23:00:00Z", "2027.orders", "2027-01-01T00:00:00+01:00", "2028-01-01T00:00:00+01:00"},
		{"a@{YYYY-Www}~b", berlin, "2027-01-03T22:59:59Z", "a@2026-W53~b", "2026-12-28T00:00:00+01:00", "2027-01-04T00:00:00+01:00"},
		{"{yyMMddHH}", berlin, "2026-10-25T01:30:00Z", "26102502", "2026-10-25T02:00:00+02:00", "2026-10-25T03:00:00+01:00"},
	} {
		k, err := number.ParseCalendarKey(row.key, row.zone)
		if err != nil || k.String() != row.key {
			t.Errorf("reading key %s: got %s and error %v, want itself", row.key, k, err)
			continue
		}
		name, period, err := k.At(moment(t, row.at))
		from, until := period.From.Format(time.RFC3339), period.Until.Format(time.RFC3339)
		if err != nil || name != row.name || from != row.from || until != row.until || period.From.Location() != k.Zone() {
			t.Errorf("%s at %s: %s from %s until %s, %v, want %s from %s until %s", row.key, row.at, name, from, until, err, row.name, row.from, row.until)
		}
	}
}

func TestParseCalendarKeySaysWhatToWriteInstead(t *testing.T) {
	for text, want := range map[string]string{
		"":                                  "it has no date; write one such as {yyyyMMdd}",
		"orders":                            "it has no date",
		"orders:{n}":                        "position 8: a key has no value",
		"o:{yyyy}:{yyyyMM}":                 "position 10: a second date",
		"o/{yyyy}":                          "position 1: '/' cannot stand in a counter's name",
		"o {yyyy}":                          "position 1: ' ' cannot stand",
		"o{{{yyyy}":                         "position 1: '{' cannot stand",
		"o{yyyy}#":                          "position 8: '#' cannot stand",
		"o{yyyy/MM}":                        "position 2: '/' cannot stand",
		"o{yyyy MM}":                        "position 2: ' ' cannot stand",
		"o{yyyyMMDD}":                       "position 9: \"DD\" is no part of a date; write dd",
		"o{yyyy":                            "position 2: the brace is not closed",
		"o\x00{yyyy}":                       "position 2:",
		"bestellung-ä{yyyy}":                "position 12:",
		"orders:{yyyyMMdd}:\n":              "position 19:",
		strings.Repeat("x", 197) + "{yyyy}": "its names would have 201 characters; 200 are the most",
	} {
		k, err := number.ParseCalendarKey(text, nil)
		if !errors.Is(err, number.ErrKey) || !strings.Contains(err.Error(), want) || k.String() != "" {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	name, _, err := key(t, strings.Repeat("x", 196)+"{yyyy}", nil).At(time.Now())
	expect.Error(t, "the name of the longest key", err, nil)
	expect.Equal(t, "the length of the longest name", len(name), number.MaxName)
}

func TestCalendarKeyRefusesYearsThatItCannotWrite(t *testing.T) {
	for _, k := range []string{"a{yyyy}", "a{yy}", "a{YYYYww}"} {
		if name, period, err := key(t, k, nil).At(time.Time{}); !errors.Is(err, number.ErrTime) || name != "" || period != (number.Period{}) {
			t.Errorf("%s in year 1: got %q, %+v and error %v, want nothing and %v", k, name, period, err, number.ErrTime)
		}
	}
	var none number.CalendarKey
	if name, _, err := none.At(time.Now()); !errors.Is(err, number.ErrKey) || name != "" || none.Zone() != time.UTC {
		t.Errorf("the zero key: %q, %v", name, err)
	}
}

func TestFitsFindsTemplatesThatWouldRepeatNumbers(t *testing.T) {
	units := map[string]string{"year": "{yyyy}", "month": "{yyMM}", "week": "{YYYYww}", "day": "{yyyyDDD}", "hour": "{yyyyMMddHH}", "minute": "{yyyyMMddHHmm}"}
	fits := map[string][]string{ // of a key that counts anew each
		"year":   {"year", "month", "day", "hour", "minute"},
		"month":  {"month", "day", "hour", "minute"},
		"week":   {"week", "day", "hour", "minute"},
		"day":    {"day", "hour", "minute"},
		"hour":   {"hour", "minute"},
		"minute": {"minute"},
	}
	for unit, date := range units {
		k := key(t, "orders:"+date, nil)
		wanted := map[string]bool{}
		for _, other := range fits[unit] {
			wanted[other] = true
		}
		for other, date := range units {
			err := number.MustTemplate(date + "-{n}").Fits(k)
			if wanted[other] != (err == nil) || err != nil && !errors.Is(err, number.ErrCoarse) {
				t.Errorf("a key of each %s and a template of each %s: %v", unit, other, err)
			}
		}
		if err := number.MustTemplate("{n}").Fits(k); !errors.Is(err, number.ErrCoarse) || !strings.Contains(err.Error(), "write "+date) {
			t.Errorf("a key of each %s and a template without a date: %v", unit, err)
		}
	}
	expect.Error(t, "Fits of the zero key", number.MustTemplate("{n}").Fits(number.CalendarKey{}), number.ErrKey)
}

var nameForm = regexp.MustCompile(`^[A-Za-z0-9._:~@-]{1,200}$`)

// With a template that fits, a value of one name never has the text of the same value of another.
// Of those that do not fit, some do.
func TestNumbersOfAKeyAreNeverRepeatedByATemplateThatFits(t *testing.T) {
	repeated := 0
	rapid.Check(t, func(t *rapid.T) {
		location := anyZone(t)
		part := rapid.SampledFrom(dates).Filter(func(date string) bool { return !strings.ContainsAny(date, "/ ") })
		k, err := number.ParseCalendarKey("orders:"+part.Draw(t, "key"), location)
		if err != nil {
			t.Fatalf("a key in %v: %v", location, err)
		}
		template := anyTemplate(t)
		at := anyTurn(t, location)
		steps := []time.Duration{time.Minute, 30 * time.Minute, time.Hour, 24 * time.Hour, 7 * 24 * time.Hour, 365 * 24 * time.Hour}
		other := at.Add(time.Duration(rapid.IntRange(0, 30).Draw(t, "steps")) * rapid.SampledFrom(steps).Draw(t, "step"))
		var names, texts [2]string
		for i, at := range []time.Time{at, other} {
			var period number.Period
			names[i], period, err = k.At(at)
			if err != nil || !nameForm.MatchString(names[i]) || at.Before(period.From) || !at.Before(period.Until) {
				t.Fatalf("%s at %v: %s, %+v, %v", k, at, names[i], period, err)
			}
			if texts[i], err = template.Format(7, at.In(k.Zone())); err != nil {
				t.Fatalf("%s of 7 at %v: %v", template, at, err)
			}
		}
		if names[0] != names[1] && texts[0] == texts[1] {
			if err := template.Fits(k); err == nil {
				t.Fatalf("%v and %v are %s and %s, and both write %s", at, other, names[0], names[1], texts[0])
			}
			repeated++
		}
	})
	if repeated == 0 {
		t.Error("no template repeated a number: this tries nothing")
	}
}

func FuzzParseCalendarKey(f *testing.F) {
	for _, seed := range []string{"", "orders:{yyyyMMdd}", "{yyyy}", "{{{yyyy}", "a{n}", "a{yy}b{MM}", "{YYYY-Www}", "a/{yyyy}", "{HH_dd_MM_yy}"} {
		f.Add(seed)
	}
	at := time.Date(2028, 2, 29, 13, 14, 15, 16, time.UTC)
	f.Fuzz(func(t *testing.T, text string) {
		k, err := number.ParseCalendarKey(text, nil)
		if err != nil {
			if !errors.Is(err, number.ErrKey) {
				t.Fatalf("reading key %q: got error %v, want %v", text, err, number.ErrKey)
			}
			return
		}
		name, period, err := k.At(at)
		if err != nil || !nameForm.MatchString(name) || period.From.After(at) || !period.Until.After(at) || k.String() != text {
			t.Fatalf("key %q, read as %q: got name %q, %+v and error %v at %v, want a counter's name and a period that has it", text, k, name, period, err, at)
		}
	})
}
