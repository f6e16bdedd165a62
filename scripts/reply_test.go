package scripts

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/fault"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

func TestReplyIsScannedInOrder(t *testing.T) {
	reply := Reply{"ok", "text", "-5", "9223372036854775807", "1700000000001", "1500", "more"}
	var (
		text     string
		n        int
		large    int64
		at       time.Time
		duration time.Duration
	)
	expect.NoError(t, "Scan", reply.Scan(&text, &n, &large, &at, &duration))
	if reply.Word() != "ok" || text != "text" || n != -5 || large != math.MaxInt64 || duration != 1500*time.Millisecond {
		t.Errorf("got %q %q %d %d %v", reply.Word(), text, n, large, duration)
	}
	expect.Equal(t, "a moment of a reply", at.UTC(), time.Date(2023, 11, 14, 22, 13, 20, 1_000_000, time.UTC))
	if values := reply.Values(); len(values) != 6 || values[5] != "more" {
		t.Errorf("the values are %q", values)
	}
}

func TestReplyThatBreaksItsContractIsAnUnknownOutcome(t *testing.T) {
	var (
		text  string
		n     int
		large int64
		at    time.Time
		span  time.Duration
		float float64
	)
	for name, row := range map[string]struct {
		reply Reply
		into  []any
	}{
		"too short":                {Reply{"ok"}, []any{&text}},
		"too short for the second": {Reply{"ok", "1"}, []any{&n, &text}},
		"no int":                   {Reply{"ok", "x"}, []any{&n}},
		"no int64":                 {Reply{"ok", "9223372036854775808"}, []any{&large}},
		"no number":                {Reply{"ok", "1.7e+15"}, []any{&large}},
		"no time":                  {Reply{"ok", ""}, []any{&at}},
		"no duration":              {Reply{"ok", "1s"}, []any{&span}},
		"no way to read it":        {Reply{"ok", "1"}, []any{&float}},
	} {
		t.Run(name, func(t *testing.T) {
			if err := row.reply.Scan(row.into...); !errors.Is(err, fault.ErrUnknownOutcome) {
				t.Errorf("got %v, want %v", err, fault.ErrUnknownOutcome)
			}
		})
	}
	if err := (Reply{"what"}).Unexpected(); !errors.Is(err, fault.ErrUnknownOutcome) {
		t.Errorf("an unexpected outcome is %v", err)
	}
}
