package number_test

import (
	"testing"
	"time"
	_ "time/tzdata" // the zones, wherever the tests run

	"github.com/coatcheck/coatcheck/number"
)

// zone finds a time zone.
func zone(t testing.TB, name string) *time.Location {
	t.Helper()
	location, err := time.LoadLocation(name)
	if err != nil {
		t.Fatalf("the zone %s: %v", name, err)
	}
	return location
}

// moment reads a time with its offset.
func moment(t testing.TB, text string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatalf("the time %s: %v", text, err)
	}
	return at
}

func key(t testing.TB, text string, zone *time.Location) number.CalendarKey {
	t.Helper()
	k, err := number.ParseCalendarKey(text, zone)
	if err != nil {
		t.Fatalf("the key %s: %v", text, err)
	}
	return k
}

// dates are date parts of every unit, in many orders.
var dates = []string{
	"{yyyy}", "{yy}", "{yyyyMM}", "{MM-yyyy}", "{yyMM}", "{YYYYww}", "{ww/YYYY}", "{YYYY-Www}", "{yyyyMMdd}", "{dd.MM.yyyy}", "{yyMMdd}", "{yyyyDDD}", "{DDD_yy}",
	"{yyyyMMddHH}", "{yyyy-MM-ddTHH}", "{HH dd MM yy}", "{yyyyDDDHH}", "{yyyyMMddHHmm}", "{yyyyDDD-HH:mm}",
}
