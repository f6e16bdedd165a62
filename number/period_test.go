package number_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/number"
)

func TestPeriodsOfTheCalendar(t *testing.T) {
	for _, row := range []struct{ date, zone, at, label, from, until string }{
		{"{yyyy}", "UTC", "2028-02-29T12:00:00Z", "2028", "2028-01-01T00:00:00Z", "2029-01-01T00:00:00Z"},
		{"{yyyyMM}", "UTC", "2028-02-29T12:00:00Z", "202802", "2028-02-01T00:00:00Z", "2028-03-01T00:00:00Z"},
		{"{yyyyMM}", "UTC", "2026-12-31T23:59:59Z", "202612", "2026-12-01T00:00:00Z", "2027-01-01T00:00:00Z"},
		{"{yyyyMMdd}", "UTC", "2028-02-29T12:00:00Z", "20280229", "2028-02-29T00:00:00Z", "2028-03-01T00:00:00Z"},
		{"{yyyyDDD}", "UTC", "2028-12-31T12:00:00Z", "2028366", "2028-12-31T00:00:00Z", "2029-01-01T00:00:00Z"},
		{"{yyyyMMddHH}", "UTC", "2028-02-29T23:59:59Z", "2028022923", "2028-02-29T23:00:00Z", "2028-03-01T00:00:00Z"},
		{"{YYYYww}", "UTC", "2027-01-03T23:59:59Z", "202653", "2026-12-28T00:00:00Z", "2027-01-04T00:00:00Z"},
		{"{YYYYww}", "UTC", "2024-12-30T00:00:00Z", "202501", "2024-12-30T00:00:00Z", "2025-01-06T00:00:00Z"},
		{"{yyyyMMdd}", "Asia/Kathmandu", "2026-11-20T18:15:00Z", "20261121", "2026-11-21T00:00:00+05:45", "2026-11-22T00:00:00+05:45"},

		// 23 hours in spring, 25 in autumn, and the hour that is there twice.
		{"{yyyyMMdd}", "Europe/Berlin", "2026-03-29T12:00:00Z", "20260329", "2026-03-29T00:00:00+01:00", "2026-03-30T00:00:00+02:00"},
		{"{yyyyMMdd}", "Europe/Berlin", "2026-10-25T12:00:00Z", "20261025", "2026-10-25T00:00:00+02:00", "2026-10-26T00:00:00+01:00"},
		{"{yyyyMMddHHmm}", "UTC", "2028-02-29T23:59:59Z", "202802292359", "2028-02-29T23:59:00Z", "2028-03-01T00:00:00Z"},
		{"{yyyyMMddHHmm}", "Europe/Berlin", "2026-10-25T01:30:00Z", "202610250230", "2026-10-25T02:30:00+02:00", "2026-10-25T02:31:00+01:00"},
		{"{yyyyMMddHH}", "Europe/Berlin", "2026-10-25T00:30:00Z", "2026102502", "2026-10-25T02:00:00+02:00", "2026-10-25T03:00:00+01:00"},
		{"{yyyyMMddHH}", "Europe/Berlin", "2026-10-25T01:30:00Z", "2026102502", "2026-10-25T02:00:00+02:00", "2026-10-25T03:00:00+01:00"},
		{"{yyyyMMddHH}", "Europe/Berlin", "2026-03-29T01:00:00Z", "2026032903", "2026-03-29T03:00:00+02:00", "2026-03-29T04:00:00+02:00"},
		{"{yyyyMM}", "Europe/Berlin", "2026-03-29T12:00:00Z", "202603", "2026-03-01T00:00:00+01:00", "2026-04-01T00:00:00+02:00"},
		{"{YYYYww}", "Europe/Berlin", "2026-03-29T12:00:00Z", "202613", "2026-03-23T00:00:00+01:00", "2026-03-30T00:00:00+02:00"},
		{"{yyyy}", "Europe/Berlin", "2026-06-01T12:00:00Z", "2026", "2026-01-01T00:00:00+01:00", "2027-01-01T00:00:00+01:00"},
		// Half an hour back.
		{"{yyyyMMddHH}", "Australia/Lord_Howe", "2026-04-04T15:10:00Z", "2026040501", "2026-04-05T01:00:00+11:00", "2026-04-05T02:00:00+10:30"},

		// Midnights that there are not, and the day before.
		{"{yyyyMMdd}", "America/Sao_Paulo", "2018-11-04T12:00:00Z", "20181104", "2018-11-04T01:00:00-02:00", "2018-11-05T00:00:00-02:00"},
		{"{yyyyMMdd}", "America/Sao_Paulo", "2018-11-04T02:59:59Z", "20181103", "2018-11-03T00:00:00-03:00", "2018-11-04T01:00:00-02:00"},
		{"{yyyyMMdd}", "Africa/Cairo", "2024-04-26T12:00:00Z", "20240426", "2024-04-26T01:00:00+03:00", "2024-04-27T00:00:00+03:00"},
		// Midnight that is there twice: the clock goes back from 24:00 to 23:00.
		{"{yyyyMMdd}", "America/Sao_Paulo", "2018-02-18T02:30:00Z", "20180217", "2018-02-17T00:00:00-02:00", "2018-02-18T00:00:00-03:00"},
		{"{yyyyMMddHH}", "America/Sao_Paulo", "2018-02-18T01:30:00Z", "2018021723", "2018-02-17T23:00:00-02:00", "2018-02-18T00:00:00-03:00"},
		// The clock goes back over a border: from one minute past midnight to the evening before.
		// Both days cover all of their moments.
		{"{yyyyMMdd}", "America/St_Johns", "2005-10-30T02:30:30Z", "20051030", "2005-10-30T00:00:00-02:30", "2005-10-31T00:00:00-03:30"},
		{"{yyyyMMdd}", "America/St_Johns", "2005-10-30T02:31:30Z", "20051029", "2005-10-29T00:00:00-02:30", "2005-10-30T00:00:00-03:30"},
		// A day that Samoa left out, and the days beside it.
		{"{yyyyMMdd}", "Pacific/Apia", "2011-12-30T09:59:59Z", "20111229", "2011-12-29T00:00:00-10:00", "2011-12-31T00:00:00+14:00"},
		{"{yyyyMMdd}", "Pacific/Apia", "2011-12-30T10:00:00Z", "20111231", "2011-12-31T00:00:00+14:00", "2012-01-01T00:00:00+14:00"},
		// The last day of leap years, some of them far away.
		{"{yyyyMMdd}", "America/New_York", "2028-12-31T12:00:00Z", "20281231", "2028-12-31T00:00:00-05:00", "2029-01-01T00:00:00-05:00"},
		{"{yyyy}", "America/New_York", "2096-12-31T12:00:00Z", "2096", "2096-01-01T00:00:00-05:00", "2097-01-01T00:00:00-05:00"},
		{"{yyyy}", "Australia/Sydney", "2096-12-31T12:00:00Z", "2096", "2096-01-01T00:00:00+11:00", "2097-01-01T00:00:00+11:00"},
		{"{yyyyMMdd}", "UTC", "9999-12-31T12:00:00Z", "99991231", "9999-12-31T00:00:00Z", "10000-01-01T00:00:00Z"},
	} {
		location := zone(t, row.zone)
		template := number.MustTemplate(row.date + "-{n}")
		period, err := template.Period(moment(t, row.at), location)
		if err != nil {
			t.Errorf("%s at %s in %s: %v", row.date, row.at, row.zone, err)
			continue
		}
		if from, until := period.From.Format(time.RFC3339), period.Until.Format(time.RFC3339); period.Label != row.label || from != row.from || until != row.until {
			t.Errorf("%s at %s in %s: %s from %s until %s, want %s from %s until %s", row.date, row.at, row.zone, period.Label, from, until, row.label, row.from, row.until)
		}
	}
}

func TestWithoutADateThereIsNoPeriod(t *testing.T) {
	template := number.MustTemplate("A{n}")
	period, err := template.Period(time.Now(), nil)
	expect.Error(t, "Period of now", err, nil)
	expect.Equal(t, "Period of now", period, number.Period{})
}

// zones are some that do what others do not.
var zones = []string{
	"UTC", "Europe/Berlin", "Europe/Dublin", "Europe/London", "America/New_York", "America/Sao_Paulo", "America/St_Johns", "America/Havana", "America/Santiago",
	"America/Asuncion", "America/Nuuk", "Africa/Cairo", "Africa/Casablanca", "Africa/Monrovia", "Antarctica/Troll", "Antarctica/Casey", "Asia/Gaza", "Asia/Tehran",
	"Asia/Beirut", "Asia/Kathmandu", "Asia/Pyongyang", "Australia/Lord_Howe", "Australia/Sydney", "Pacific/Apia", "Pacific/Kwajalein", "Pacific/Kiritimati", "Pacific/Chatham",
}

func anyZone(t *rapid.T) *time.Location {
	name := rapid.SampledFrom(zones).Draw(t, "zone")
	location, err := time.LoadLocation(name)
	if err != nil {
		t.Fatalf("the zone %s: %v", name, err)
	}
	return location
}

// anyTurn draws a moment near to one at which a zone's clock changes, if it ever does. From it,
// every date part can write another 30 years.
func anyTurn(t *rapid.T, location *time.Location) time.Time {
	from, until := time.Date(2002, 1, 1, 0, 0, 0, 0, time.UTC).Unix(), time.Date(2065, 1, 1, 0, 0, 0, 0, time.UTC).Unix()
	at := time.Unix(rapid.Int64Range(from, until).Draw(t, "moment"), 0).In(location)
	if _, end := at.ZoneBounds(); !end.IsZero() && rapid.Bool().Draw(t, "at a change") {
		at = end.Add(time.Duration(rapid.Int64Range(-30*60, 30*60).Draw(t, "minutes")) * time.Minute)
	}
	return at
}

// A period has all moments of its label, and begins and ends with one. Looked at minute by minute
// around its ends, and hour by hour farther away.
func TestPeriodsHaveAllMomentsOfTheirLabel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		location := anyZone(t)
		template := number.MustTemplate(rapid.SampledFrom(dates).Draw(t, "date") + "{n}")
		at := anyTurn(t, location)
		period, err := template.Period(at, location)
		if err != nil {
			t.Fatalf("%s at %v: %v", template, at, err)
		}
		shows := func(at time.Time) bool {
			text, err := template.Format(7, at.In(location))
			if err != nil {
				t.Fatalf("%s of 7 at %v: %v", template, at, err)
			}
			return text == period.Label+"7"
		}
		if at.Before(period.From) || !at.Before(period.Until) || !shows(at) {
			t.Fatalf("%v is not in %+v", at, period)
		}
		if !shows(period.From) || !shows(period.Until.Add(-1)) {
			t.Fatalf("%+v does not begin and end with its label", period)
		}
		for _, step := range []time.Duration{time.Nanosecond, time.Minute, time.Hour} {
			for i := range 70 {
				before, behind := period.From.Add(-1-step*time.Duration(i)), period.Until.Add(step*time.Duration(i))
				if shows(before) || shows(behind) {
					t.Fatalf("%+v: %v shows it: %v, %v shows it: %v", period, before, shows(before), behind, shows(behind))
				}
			}
		}
	})
}
