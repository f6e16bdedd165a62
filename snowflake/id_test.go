package snowflake_test

import (
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/snowflake"
)

const largest = snowflake.ID(math.MaxInt64)

// Vectors from outside: what other programs write and read.
func TestVectors(t *testing.T) {
	twitterEpoch := time.UnixMilli(1288834974657)
	for _, row := range []struct {
		id    snowflake.ID
		epoch time.Time
		want  snowflake.Parts
	}{
		{1169786042799259000, twitterEpoch, snowflake.Parts{Time: time.UnixMilli(1567733700834).UTC(), Worker: 39, Sequence: 3448}},
		{890399407000784896, twitterEpoch, snowflake.Parts{Time: time.UnixMilli(1501122736107).UTC(), Worker: 1, Sequence: 0}},
		{4194308096, time.UnixMilli(0), snowflake.Parts{Time: time.UnixMilli(1000).UTC(), Worker: 1}},
		{4194308097, time.UnixMilli(0), snowflake.Parts{Time: time.UnixMilli(1000).UTC(), Worker: 1, Sequence: 1}},
	} {
		expect.Equal(t, fmt.Sprint("parts of ", row.id), twitter.Decode(row.id, row.epoch), row.want)
		if got, err := twitter.Encode(row.want, row.epoch); got != row.id || err != nil {
			t.Errorf("%+v is %d, %v, want %d", row.want, got, err, row.id)
		}
	}
}

// anyLayout draws layouts that last up to a thousand years, so that every time has four digits in
// its year.
func anyLayout(t *rapid.T) snowflake.Layout {
	low := rapid.IntRange(1, 28).Draw(t, "low")
	identity := rapid.IntRange(1, min(low, snowflake.MaxWorkerBits)).Draw(t, "identity")
	worker := rapid.IntRange(1, identity).Draw(t, "worker")
	layout := snowflake.Layout{Datacenter: identity - worker, Worker: worker, Sequence: low - identity}
	if layout.Unit = time.Millisecond; rapid.Bool().Draw(t, "seconds") {
		layout.Unit = time.Second
		layout.Timestamp = rapid.IntRange(20, 35).Draw(t, "timestamp")
	} else {
		layout.Timestamp = rapid.IntRange(20, min(45, 63-low)).Draw(t, "timestamp")
	}
	return layout
}

func anyID(t *rapid.T, layout snowflake.Layout) snowflake.ID {
	return snowflake.ID(rapid.Int64Range(0, int64(layout.Max())).Draw(t, "id"))
}

func anyEpoch(t *rapid.T) time.Time {
	return time.UnixMilli(rapid.Int64Range(-1e12, 3e12).Draw(t, "epoch")).UTC()
}

func TestEncodeIsTheInverseOfDecode(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		layout, epoch := anyLayout(t), anyEpoch(t)
		id := anyID(t, layout)
		parts := layout.Decode(id, epoch)
		if again, err := layout.Encode(parts, epoch); again != id || err != nil {
			t.Fatalf("%v: %d is %+v, and that is %d, %v", layout, id, parts, again, err)
		}
	})
}

func TestEncodeRefusesPartsThatDoNotFit(t *testing.T) {
	layout := snowflake.MustLayout(snowflake.DatacenterLayout)
	epoch := time.UnixMilli(1_600_000_000_000)
	fits := snowflake.Parts{Time: epoch, Datacenter: 31, Worker: 31, Sequence: 4095}
	for name, change := range map[string]func(*snowflake.Parts) error{
		"fits":                  func(p *snowflake.Parts) error { return nil },
		"last moment":           func(p *snowflake.Parts) error { p.Time = layout.Lasts(epoch).Add(-1); return nil },
		"before the epoch":      func(p *snowflake.Parts) error { p.Time = epoch.Add(-1); return snowflake.ErrRange },
		"long before":           func(p *snowflake.Parts) error { p.Time = time.Unix(math.MinInt64/2, 0); return snowflake.ErrRange },
		"after the last":        func(p *snowflake.Parts) error { p.Time = layout.Lasts(epoch); return snowflake.ErrRange },
		"long after":            func(p *snowflake.Parts) error { p.Time = time.Unix(math.MaxInt64/2, 0); return snowflake.ErrRange },
		"datacenter too large":  func(p *snowflake.Parts) error { p.Datacenter = 32; return snowflake.ErrMisfit },
		"datacenter negative":   func(p *snowflake.Parts) error { p.Datacenter = -1; return snowflake.ErrMisfit },
		"worker too large":      func(p *snowflake.Parts) error { p.Worker = 32; return snowflake.ErrMisfit },
		"worker negative":       func(p *snowflake.Parts) error { p.Worker = -1; return snowflake.ErrMisfit },
		"worker as a short int": func(p *snowflake.Parts) error { p.Worker = 1 << 16; return snowflake.ErrMisfit },
		"sequence too large":    func(p *snowflake.Parts) error { p.Sequence = 4096; return snowflake.ErrRange },
		"sequence negative":     func(p *snowflake.Parts) error { p.Sequence = -1; return snowflake.ErrRange },
	} {
		parts := fits
		want := change(&parts)
		if id, err := layout.Encode(parts, epoch); !errors.Is(err, want) {
			t.Errorf("%s: %d, %v, want %v", name, id, err, want)
		}
	}
	if _, err := (snowflake.Layout{}).Encode(fits, epoch); err == nil {
		t.Error("the zero layout was taken")
	}
}

func TestLayoutsByName(t *testing.T) {
	for text, want := range map[string]struct {
		years float64
		max   snowflake.ID
	}{
		snowflake.DefaultLayout:    {69.7, largest},
		snowflake.DatacenterLayout: {69.7, largest},
		snowflake.JavaScriptLayout: {69.7, 1<<53 - 1},
		snowflake.SecondsLayout:    {136.1, largest},
	} {
		layout := snowflake.MustLayout(text)
		if got := layout.Years(); math.Abs(got-want.years) > 0.05 || layout.Max() != want.max {
			t.Errorf("%s: %v years, up to %d", text, got, layout.Max())
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("a layout of 64 bits was taken")
		}
	}()
	snowflake.MustLayout("41/10/13")
}

func TestJSON(t *testing.T) {
	var box struct {
		ID snowflake.ID `json:"id"`
	}
	for text, want := range map[string]snowflake.ID{
		`{"id":"1169786042799259000"}`: 1169786042799259000, `{"id":"0"}`: 0, `{"id":"9223372036854775807"}`: largest,
		`{"id":7}`: 7, `{"id":9007199254740991}`: 1<<53 - 1, `{"id":null}`: 0, `{}`: 0,
	} {
		box.ID = 0
		expect.Error(t, "reading "+text, json.Unmarshal([]byte(text), &box), nil)
		expect.Equal(t, "reading "+text, box.ID, want)
	}
	for _, text := range []string{
		`9007199254740992`, `1e3`, `1.0`, `-1`, `"-1"`, `""`, `"007"`, `" 7"`, `"+7"`, `"9223372036854775808"`, `true`, `[]`, `{}`, `"\u0037"`,
	} {
		box.ID = 5
		if err := json.Unmarshal([]byte(`{"id":`+text+`}`), &box); err == nil || box.ID != 5 {
			t.Errorf("reading %s: got %d and error %v, want an error and the id that was there, 5", text, box.ID, err)
		}
	}
	text, err := json.Marshal(map[snowflake.ID]snowflake.ID{7: largest})
	expect.Error(t, "writing a map of ids", err, nil)
	expect.Equal(t, "writing a map of ids", string(text), `{"7":"9223372036854775807"}`)
	if text, err := json.Marshal(snowflake.ID(-1)); err == nil {
		t.Errorf("wrote %s", text)
	}
}

func TestDatabase(t *testing.T) {
	for _, source := range []any{int64(77), "77", []byte("77")} {
		var id snowflake.ID
		expect.Error(t, fmt.Sprintf("Scan %#v", source), id.Scan(source), nil)
		expect.Equal(t, fmt.Sprintf("Scan %#v", source), id, 77)
	}
	for _, source := range []any{int64(-1), "-1", []byte("007"), "", nil, 7.0, 7, true} {
		id := snowflake.ID(5)
		if err := id.Scan(source); err == nil || id != 5 {
			t.Errorf("Scan %#v: got %d and error %v, want an error and the id that was there, 5", source, id, err)
		}
	}
	var null sql.Null[snowflake.ID]
	if err := null.Scan(nil); err != nil || null.Valid {
		t.Errorf("NULL: %+v, %v", null, err)
	}
	value, err := snowflake.ID(77).Value()
	expect.Error(t, "Value of 77", err, nil)
	expect.Equal(t, "Value of 77", value, driver.Value(int64(77)))
	_, err = snowflake.ID(-1).Value()
	expect.Error(t, "Value of -1", err, snowflake.ErrRange)
}
