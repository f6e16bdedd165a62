package number_test

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/number"
)

func TestTemplatesWriteTheVectors(t *testing.T) {
	for _, row := range []struct {
		template string
		value    int64
		at       string
		want     string
		label    string
	}{
		{"ORD-{yyyyMMdd}-{n:6}", 42, "2026-11-21T15:04:05Z", "ORD-20261121-000042", "20261121"},
		{"ORD-{yyyyMMdd}-{n:6}", 999_999, "2026-11-21T15:04:05Z", "ORD-20261121-999999", "20261121"},
		{"{n}", 0, "2026-11-21T15:04:05Z", "0", ""},
		{"{n}", math.MaxInt64, "2026-11-21T15:04:05Z", "9223372036854775807", ""},
		{"{n:1}", 9, "2026-11-21T15:04:05Z", "9", ""},
		{"{n:18}", 999_999_999_999_999_999, "2026-11-21T15:04:05Z", "999999999999999999", ""},
		{"Invoice #{n} / {yyyy}", 7, "2026-11-21T15:04:05Z", "Invoice #7 / 2026", "2026"},
		{"{{{n}}}", 7, "2026-11-21T15:04:05Z", "{7}", ""},
		{"{{n}}{n:2}", 7, "2026-11-21T15:04:05Z", "{n}07", ""},
		{"a.b_c:d~e@f-g/h#i {n}", 1, "2026-11-21T15:04:05Z", "a.b_c:d~e@f-g/h#i 1", ""},
		{"{yyMM}/{n:4}", 1, "2026-01-02T03:04:05Z", "2601/0001", "2601"},
		{"{dd.MM.yyyy}-{n}", 1, "2026-01-02T03:04:05Z", "02.01.2026-1", "02.01.2026"},
		{"{n}{yyyyDDD}", 1, "2026-01-02T03:04:05Z", "12026002", "2026002"},
		{"{yyyy-MM-ddTHH}:{n}", 1, "2026-01-02T03:59:59.999Z", "2026-01-02T03:1", "2026-01-02T03"},
		{"{n}{yyyy}", 1, "2026-01-02T03:04:05Z", "12026", "2026"},
		{"{yyyy}{n}", 1, "2026-01-02T03:04:05Z", "20261", "2026"},
		// Leap years, and the years at which the digits end.
		{"{yyyyDDD}-{n}", 1, "2028-12-31T00:00:00Z", "2028366-1", "2028366"},
		{"{yyyyMMdd}-{n}", 1, "2028-02-29T00:00:00Z", "20280229-1", "20280229"},
		{"{yyyyMMdd}-{n}", 1, "1970-01-01T00:00:00Z", "19700101-1", "19700101"},
		{"{yyyyMMdd}-{n}", 1, "9999-12-31T23:59:59Z", "99991231-1", "99991231"},
		{"{yy}-{n}", 1, "2000-01-01T00:00:00Z", "00-1", "00"},
		{"{yy}-{n}", 1, "2099-12-31T23:59:59Z", "99-1", "99"},
		// ISO weeks at the year's turn.
		{"{YYYY-Www}/{n}", 1, "2026-12-31T12:00:00Z", "2026-W53/1", "2026-W53"},
		{"{YYYY-Www}/{n}", 1, "2027-01-03T12:00:00Z", "2026-W53/1", "2026-W53"},
		{"{YYYY-Www}/{n}", 1, "2027-01-04T00:00:00Z", "2027-W01/1", "2027-W01"},
		{"{YYYY-Www}/{n}", 1, "2024-12-30T00:00:00Z", "2025-W01/1", "2025-W01"},
		{"{YYYYww}/{n}", 1, "9999-12-31T23:59:59Z", "999952/1", "999952"},
		{"{YYYYww}/{n}", 1, "1970-01-01T00:00:00Z", "197001/1", "197001"},
		// The date is that of the moment's own zone.
		{"{yyyyMMddHH}-{n}", 1, "2026-12-31T23:30:00-05:00", "2026123123-1", "2026123123"},
		{"{yyyyMMddHH}-{n}", 1, "2027-01-01T04:30:00Z", "2027010104-1", "2027010104"},
	} {
		template, err := number.ParseTemplate(row.template)
		if err != nil || template.String() != row.template {
			t.Errorf("reading template %s: got %s and error %v, want itself", row.template, template, err)
			continue
		}
		at := moment(t, row.at)
		if got, err := template.Format(row.value, at); got != row.want || err != nil {
			t.Errorf("%s of %d at %s: %q, %v, want %q", row.template, row.value, row.at, got, err, row.want)
		}
		if period, err := template.Period(at, at.Location()); period.Label != row.label || err != nil {
			t.Errorf("%s at %s: %+v, %v", row.template, row.at, period, err)
		}
	}
}

// What ParseTemplate refuses, where, and what it says to write instead.
func TestParseTemplateSaysWhereAndWhatToWriteInstead(t *testing.T) {
	for text, want := range map[string]string{
		"":                              "write {n}",
		"ORD-1":                         "write {n}",
		"{yyyy}":                        "write {n}",
		"{{n}}":                         "write {n}",
		"{n}{n:2}":                      "position 4: a second value",
		"{yyyy}{MM}{n}":                 "position 8: \"MM\" comes back each year; write yyyy",
		"{yyyy}{yyyy}{n}":               "position 7: a second date",
		"{yyyy}-{yyyyMM}-{n}":           "position 8: a second date; write all of it",
		"a{":                            "position 2: the brace is not closed; write {{",
		"a{n":                           "position 2: the brace is not closed",
		"a}{n}":                         "position 2: this brace closes nothing; write }}",
		"{n}}":                          "position 4: this brace closes nothing",
		"{}{n}":                         "position 2: nothing between the braces; write {n}",
		"{n:0}":                         "position 4: \"0\" is no width; write 1 to 18",
		"{n:19}":                        "position 4: \"19\" is no width",
		"{n:06}":                        "position 4: \"06\" is no width; write 1 to 18, as in {n:6} for 000042",
		"{n:+6}":                        "position 4: \"+6\" is no width",
		"{n:}":                          "position 4: \"\" is no width",
		"{n:6}{n:x}":                    "position 9: \"x\" is no width",
		"{N}":                           "position 2: \"N\" is no part of a date; write {n}",
		"{seq}":                         "position 2: \"seq\" is no part of a date; write yyyy",
		"{yyyymmdd}{n}":                 "has a minute without its hour; write HH to it, or MM for the month",
		"{yyyyMMDD}{n}":                 "position 8: \"DD\" is no part of a date; write dd for the day of the month",
		"{yyyyMMddhh}{n}":               "write HH",
		"{yyyyMMddHHmmss}{n}":           "position 14: \"ss\"",
		"{yyyyy}{n}":                    "position 2: \"yyyyy\"",
		"{yyyyMMdd'T'HH}{n}":            "position 10: \"'T'HH\" is no part of a date",
		"{yyyy/MM/dd+HH}{n}":            "position 12: \"+HH\"",
		"{yyyy\u2011MM}{n}":             "position 6:",
		"{yyyy-MM-MM}{n}":               "position 10: a second MM",
		"{-yyyy}{n}":                    "position 2: \"-yyyy\" begins or ends with a separator; write it outside",
		"{yyyy-}{n}":                    "position 2: \"yyyy-\" begins or ends",
		"{yyyyTTMM}{n}":                 "position 6: \"TTMM\" is no part",
		"{YYYYWW}{n}":                   "position 6: \"WW\" is no part of a date; write ww",
		"{YYYY-MM-dd}{n}":               "has the year that an ISO week belongs to, without a week; write yyyy",
		"{YYYY}{n}":                     "write yyyy",
		"{ww}{n}":                       "comes back each year; write YYYY",
		"{yyyyww}{n}":                   "write YYYY, the week's own year",
		"{yyww}{n}":                     "write YYYY, the week's own year",
		"{dd}{n}":                       "comes back each year; write yyyy",
		"{HH}{n}":                       "comes back each year; write yyyy",
		"{yyyydd}{n}":                   "names no period; write yyyy, yyyy MM",
		"{yyyyMMHH}{n}":                 "names no period",
		"{yyyyHH}{n}":                   "names no period",
		"{yyyyMMDDD}{n}":                "names no period",
		"{YYYYwwdd}{n}":                 "names no period",
		"{yyyyyy}{n}":                   "position 2:",
		"{yyyy-yy}{n}":                  "has two years; write yyyy or yy",
		" {n}":                          "position 1: a space at the beginning",
		"{n} ":                          "position 4: a space at the end",
		"{n}\n":                         `position 4: '\n' cannot be written`,
		"a\x00{n}":                      `position 2: '\x00' cannot be written`,
		"No. {n} \u20ac":                `position 9: '€' cannot be written`,
		"{n}\xff":                       "position 4:",
		"50%{n}":                        "position 3: '%' cannot be written; text is A–Z",
		"a\\b{n}":                       `position 2: '\\'`,
		strings.Repeat("x", 98) + "{n}": "position 101: 100 characters are the most",
	} {
		template, err := number.ParseTemplate(text)
		if !errors.Is(err, number.ErrTemplate) || !strings.Contains(err.Error(), want) || template.String() != "" {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	_, err := number.ParseTemplate(strings.Repeat("x", 97) + "{n}")
	expect.Error(t, "the longest template", err, nil)
}

func TestMustTemplatePanicsWithTheReason(t *testing.T) {
	defer func() {
		if err, ok := recover().(error); !ok || !errors.Is(err, number.ErrTemplate) {
			t.Errorf("recovered %v", err)
		}
	}()
	number.MustTemplate("{n:99}")
}

func TestTheZeroTemplateIsNone(t *testing.T) {
	var none number.Template
	_, errFormat := none.Format(1, time.Now())
	_, errPeriod := none.Period(time.Now(), nil)
	errFits := none.Fits(key(t, "a{yyyy}", nil))
	for name, err := range map[string]error{"Format": errFormat, "Period": errPeriod, "Fits": errFits} {
		expect.Error(t, name, err, number.ErrTemplate)
	}
}

// A value never grows past its width, and nothing is written of what is refused.
func TestFormatRefusesWhatDoesNotFit(t *testing.T) {
	at := moment(t, "2026-11-21T15:04:05Z")
	for _, row := range []struct {
		template string
		value    int64
		at       time.Time
		want     error
		says     string
	}{
		{"{n:6}", 1_000_000, at, number.ErrWidth, "999999 at most"},
		{"{n:1}", 10, at, number.ErrWidth, "9 at most"},
		{"{n:18}", 1_000_000_000_000_000_000, at, number.ErrWidth, "999999999999999999 at most"},
		{"{n:18}", math.MaxInt64, at, number.ErrWidth, "999999999999999999 at most"},
		{"{n}", -1, at, number.ErrNegative, "negative"},
		{"{n:6}", math.MinInt64, at, number.ErrNegative, "negative"},
		{"{yyyy}{n}", 1, time.Time{}, number.ErrTime, "the year 1 in {yyyy}: 1970 to 9999"},
		{"{yyyy}{n}", 1, time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC), number.ErrTime, "10000"},
		{"{yyyy}{n}", 1, time.Date(1969, 12, 31, 23, 59, 59, 0, time.UTC), number.ErrTime, "1969"},
		{"{yyyy}{n}", 1, time.Date(-2026, 1, 1, 0, 0, 0, 0, time.UTC), number.ErrTime, "-2026"},
		{"{yy}{n}", 1, time.Date(1999, 12, 31, 0, 0, 0, 0, time.UTC), number.ErrTime, "2000 to 2099"},
		{"{yy}{n}", 1, time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC), number.ErrTime, "2000 to 2099"},
		{"{YYYYww}{n}", 1, time.Date(10000, 1, 3, 0, 0, 0, 0, time.UTC), number.ErrTime, "10000"},
	} {
		template := number.MustTemplate(row.template)
		text, err := template.Format(row.value, row.at)
		if !errors.Is(err, row.want) || !strings.Contains(err.Error(), row.says) || text != "" {
			t.Errorf("%s of %d at %v: %q, %v, want %v", row.template, row.value, row.at, text, err, row.says)
		}
		if got, err := template.Append([]byte("before"), row.value, row.at); err == nil || string(got) != "before" {
			t.Errorf("%s of %d: %q, %v", row.template, row.value, got, err)
		}
		var wide *number.TooWideError
		if errors.As(err, &wide) != errors.Is(err, number.ErrWidth) || wide != nil && wide.Max != template.Max() {
			t.Errorf("%s of %d: %+v, and Max is %d", row.template, row.value, wide, template.Max())
		}
		if !errors.Is(row.want, number.ErrTime) {
			continue
		}
		if period, err := template.Period(row.at, nil); !errors.Is(err, number.ErrTime) || period != (number.Period{}) {
			t.Errorf("%s at %v: %+v, %v", row.template, row.at, period, err)
		}
	}
	if text, err := number.MustTemplate("{n}").Format(5, time.Time{}); text != "5" || err != nil {
		t.Errorf("without a date the moment does not matter: %q, %v", text, err)
	}
}

// anyTemplate draws a template, with digits as text beside its parts more often than not.
func anyTemplate(t *rapid.T) number.Template {
	text := rapid.StringMatching(`([0-9]|[A-Za-z0-9._:~@/#-]|\{\{|\}\}){0,4}`)
	value := rapid.SampledFrom([]string{"{n}", "{n}", "{n:1}", "{n:3}", "{n:6}", "{n:18}"}).Draw(t, "value")
	parts := []string{value, rapid.SampledFrom(append([]string{""}, dates...)).Draw(t, "date")}
	if rapid.Bool().Draw(t, "date first") {
		parts[0], parts[1] = parts[1], parts[0]
	}
	template, err := number.ParseTemplate(text.Draw(t, "before") + parts[0] + text.Draw(t, "between") + parts[1] + text.Draw(t, "behind"))
	if err != nil {
		t.Fatalf("a template that was drawn: %v", err)
	}
	return template
}

// No two values and no two periods have one text, whatever digits stand where. Values are drawn
// from the digits of the dates, so that they could be taken for them.
func TestTemplatesNeverWriteOneTextTwice(t *testing.T) {
	var values []int64
	for _, year := range []int64{2002, 2020, 2021, 2022} {
		values = append(values, year, year%100, year*100+2, year*10_000+202, year*10_000_000, 100_000_000+year, year%10*100)
	}
	values = append(values, 0, 1, 2, 10, 11, 12, 20, 111, 112, 120, 122, 202)
	var moments []time.Time
	for _, year := range []int{2002, 2020, 2021, 2022} {
		for _, day := range []int{1, 2, 11, 12, 21, 22, 111, 112, 202, 222, 365} {
			moments = append(moments, time.Date(year, 1, day, 2, 0, 0, 0, time.UTC), time.Date(year, 1, day, 20, 0, 0, 0, time.UTC))
		}
	}
	type origin struct {
		label string
		value int64
	}
	rapid.Check(t, func(t *rapid.T) {
		template := anyTemplate(t)
		seen := map[string]origin{}
		for _, at := range moments {
			period, err := template.Period(at, nil)
			if err != nil {
				t.Fatalf("%s at %v: %v", template, at, err)
			}
			for _, value := range values {
				text, err := template.Format(value, at)
				if errors.Is(err, number.ErrWidth) {
					continue
				}
				this := origin{period.Label, value}
				if before, ok := seen[text]; err != nil || ok && before != this {
					t.Fatalf("%s: %q is %+v and %+v, %v", template, text, before, this, err)
				}
				seen[text] = this
			}
		}
	})
}

func TestAppendAllocatesNothing(t *testing.T) {
	template := number.MustTemplate("ORD-{yyyyMMdd}-{n:6}")
	at := moment(t, "2026-11-21T15:04:05Z")
	buffer := make([]byte, 0, 1<<10)
	if n := testing.AllocsPerRun(100, func() { buffer, _ = template.Append(buffer[:0], 42, at) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// What is a template is one with exactly one value, and writes what it reads.
func FuzzParseTemplate(f *testing.F) {
	for _, seed := range []string{"", "{n}", "ORD-{yyyyMMdd}-{n:6}", "{{{n}}}", "{n:18}{YYYY-Www}", "{n:0}", "{yyyyMM}{n}{n}", "}{", "{n", " {n}", "{dd.MM.yy HH}#{n}"} {
		f.Add(seed)
	}
	at := time.Date(2028, 2, 29, 13, 14, 15, 16, time.UTC)
	f.Fuzz(func(t *testing.T, text string) {
		template, err := number.ParseTemplate(text)
		if err != nil {
			if !errors.Is(err, number.ErrTemplate) || template.String() != "" {
				t.Fatalf("reading template %q: got %v and error %v, want none and %v", text, template, err, number.ErrTemplate)
			}
			return
		}
		if template.String() != text || !strings.Contains(text, "{n") {
			t.Fatalf("%q became %q", text, template)
		}
		for _, value := range []int64{0, 1, template.Max()} {
			written, err := template.Format(value, at)
			if err != nil || strings.ContainsFunc(written, func(r rune) bool { return r < ' ' || r > '~' }) {
				t.Fatalf("%q of %d: %q, %v", text, value, written, err)
			}
		}
	})
}
