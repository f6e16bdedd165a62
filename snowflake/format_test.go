package snowflake_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/snowflake"
)

func TestFormatsWriteTheVectors(t *testing.T) {
	style := snowflake.Style{Epoch: time.UnixMilli(1288834974657)}
	for _, row := range []struct {
		format snowflake.Format
		id     snowflake.ID
		want   string
	}{
		{"", 3843, "3843"},
		{snowflake.FormatDecimal, largest, "9223372036854775807"},
		{snowflake.FormatPadded, 3843, "0000000000000003843"},
		{snowflake.FormatPadded, largest, "9223372036854775807"},
		{snowflake.FormatBase36, 35, "z"},
		{snowflake.FormatBase36, largest, "1y2p0ij32e8e7"},
		{snowflake.FormatBase62, 0, "0"},
		{snowflake.FormatBase62, 3843, "zz"},
		{snowflake.FormatBase62, largest, "AzL8n0Y58m7"},
		{snowflake.FormatBase32, 31, "Z"},
		{snowflake.FormatBase32, 1234, "16J"},
		{snowflake.FormatBase32, largest, "7ZZZZZZZZZZZZ"},
		// worker 39 and sequence 3448 are 163192
		{snowflake.FormatTimed, 1169786042799259000, "201909060135008340163192"},
		{snowflake.FormatTimed, 0, "201011040142546570000000"},
	} {
		got, err := row.format.Append([]byte("id "), row.id, style)
		if err != nil || string(got) != "id "+row.want {
			t.Errorf("%s of %d: %q, %v, want %q", row.format, row.id, got, err, row.want)
		}
		if back, err := row.format.Parse(row.want, style); back != row.id || err != nil {
			t.Errorf("%s: %q is %d, %v, want %d", row.format, row.want, back, err, row.id)
		}
	}
	for format, id := range map[string]string{
		snowflake.ID(3843).String(): "3843", snowflake.ID(3843).Base62(): "zz", snowflake.ID(35).Base36(): "z", snowflake.ID(31).Base32(): "Z",
		snowflake.ID(-5).Base62(): "-5",
	} {
		expect.Equal(t, "an id as text", format, id)
	}
}

// What a parser refuses, and why.
func TestParsersAreStrict(t *testing.T) {
	syntax, beyond := snowflake.ErrSyntax, snowflake.ErrRange
	style := snowflake.Style{Width: 5}
	for _, row := range []struct {
		format snowflake.Format
		text   string
		want   error
	}{
		{"decimal", "", syntax}, {"decimal", "-1", syntax}, {"decimal", "+1", syntax}, {"decimal", "01", syntax}, {"decimal", "1 ", syntax}, {"decimal", "1_0", syntax},
		{"decimal", "0x1", syntax}, {"decimal", "１", syntax}, {"decimal", "9223372036854775808", beyond}, {"decimal", strings.Repeat("9", 400), beyond},
		{"decimal", "99999999999999999999x", syntax},
		{"padded", "1234", syntax}, {"padded", "123456", syntax}, {"padded", "-1234", syntax}, {"padded", " 1234", syntax}, {"padded", "", syntax},
		{"base36", "", syntax}, {"base36", "Z", syntax}, {"base36", "0z", syntax}, {"base36", "-z", syntax}, {"base36", "1y2p0ij32e8e8", beyond},
		{"base62", "", syntax}, {"base62", "AzL8n0Y58m8", beyond}, {"base62", "zzzzzzzzzzz", beyond}, {"base62", "0A", syntax}, {"base62", "a-b", syntax},
		{"base32", "", syntax}, {"base32", "U", syntax}, {"base32", "-1", syntax}, {"base32", "1-", syntax}, {"base32", "-", syntax}, {"base32", "8000000000000", beyond},
		{"base32", "1=", syntax}, {"base32", strings.Repeat("0", 65), syntax},
		{"timed", "", syntax}, {"timed", "2020010100000000000000000", syntax}, {"timed", "202013010000000000000000", syntax}, {"timed", "202001010000000004194304", beyond},
		{"timed", "201912312359599990000000", beyond}, {"timed", "209001010000000000000000", beyond}, {"timed", "20200101000000000000000x", syntax},
		{"timed", "20200101000000,000000000", syntax}, {"timed", "2020010100000000000000-1", syntax},
		{"unknown", "1", syntax},
	} {
		if id, err := row.format.Parse(row.text, style); !errors.Is(err, row.want) || id != 0 {
			t.Errorf("%s %q: %d, %v, want %v", row.format, row.text, id, err, row.want)
		}
	}
}

// The spec of Crockford's base 32, for people who read it aloud.
func TestBase32IsTolerant(t *testing.T) {
	for text, want := range map[string]snowflake.ID{
		"16j": 1234, "I6J": 1234, "l6j": 1234, "L6J": 1234, "i6j": 1234, "o16J": 1234, "O": 0, "1-6-J": 1234, "0000000000000016J": 1234, "7zzz-zzzz-zzzzz": largest,
	} {
		if got, err := snowflake.ParseBase32(text); got != want || err != nil {
			t.Errorf("%s: %d, %v, want %d", text, got, err, want)
		}
	}
}

// A padded decimal never grows past its width.
func TestPaddedRefusesWhatDoesNotFit(t *testing.T) {
	text, err := snowflake.ID(99999).Padded(5)
	expect.Error(t, "99999 in 5 digits", err, nil)
	expect.Equal(t, "99999 in 5 digits", text, "99999")
	text, err = snowflake.ID(7).Padded(snowflake.MaxWidth)
	expect.Error(t, "7 in the most digits", err, nil)
	expect.Equal(t, "the length of 7 in the most digits", len(text), snowflake.MaxWidth)
	for _, row := range []struct {
		id    snowflake.ID
		width int
	}{{100000, 5}, {largest, 18}, {-1, 5}, {1, 0}, {1, -1}, {1, snowflake.MaxWidth + 1}} {
		if text, err := row.id.Padded(row.width); !errors.Is(err, snowflake.ErrRange) || text != "" {
			t.Errorf("%d in %d digits: %q, %v", row.id, row.width, text, err)
		}
	}
}

func TestAppendLeavesTheTextAsItWasWhenItRefuses(t *testing.T) {
	for _, format := range append(snowflake.Formats(), "unknown") {
		if got, err := format.Append([]byte("before"), -1, snowflake.Style{}); err == nil || string(got) != "before" {
			t.Errorf("%s of -1: got %q and error %v, want an error and the text that was there", format, got, err)
		}
	}
	layout := snowflake.MustLayout("20/1/2")
	for name, style := range map[string]snowflake.Style{
		"above the layout":    {Layout: layout},
		"layout out of order": {Layout: snowflake.Layout{Timestamp: 1}},
	} {
		if got, err := snowflake.FormatTimed.Append(nil, layout.Max()+1, style); err == nil || got != nil {
			t.Errorf("%s: got %q and error %v, want no text and an error", name, got, err)
		}
	}
	if got, err := snowflake.ID(1).Timed(twitter, time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)); err == nil {
		t.Errorf("the year 10000: %s", got)
	}
	if got, err := snowflake.ID(1).Timed(twitter, time.Date(-1, 1, 1, 0, 0, 0, 0, time.UTC)); err == nil {
		t.Errorf("the year -1: %s", got)
	}
}

// Every format reads what it writes, and those of one width sort like the ids.
func TestFormatsKeepIDsAndOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		style := snowflake.Style{Layout: anyLayout(t), Epoch: anyEpoch(t)}
		a, b := anyID(t, style.Layout), anyID(t, style.Layout)
		for _, format := range snowflake.Formats() {
			texts := make([]string, 2)
			for i, id := range []snowflake.ID{a, b} {
				text, err := format.Append(nil, id, style)
				if err != nil {
					t.Fatalf("%s of %d: %v", format, id, err)
				}
				if back, err := format.Parse(string(text), style); back != id || err != nil {
					t.Fatalf("%s of %d: %q is %d, %v", format, id, text, back, err)
				}
				texts[i] = string(text)
			}
			fixed := format == snowflake.FormatPadded || format == snowflake.FormatTimed
			if fixed && len(texts[0]) != len(texts[1]) || len(texts[0]) == len(texts[1]) && (a < b) != (texts[0] < texts[1]) {
				t.Fatalf("%s: %d and %d are %q", format, a, b, texts)
			}
		}
	})
}

func TestTimedOfAnEpochBetweenTwoMilliseconds(t *testing.T) {
	epoch := time.Date(2020, 1, 1, 0, 0, 0, 1_700_000, time.UTC)
	text, err := snowflake.ID(5<<22|9).Timed(twitter, epoch)
	expect.Error(t, "writing it", err, nil)
	expect.Equal(t, "writing it", text, "202001010000000060000009")
	back, err := snowflake.ParseTimed(text, twitter, epoch)
	expect.Error(t, "reading "+text, err, nil)
	expect.Equal(t, "reading "+text, back, 5<<22|9)
	_, err = snowflake.ParseTimed("202001010000005000000000", snowflake.MustLayout("31/10/12@s"), snowflake.DefaultEpoch)
	expect.Error(t, "reading a text between two seconds, with a layout of seconds", err, snowflake.ErrSyntax)
}

func TestParseFormat(t *testing.T) {
	for _, want := range snowflake.Formats() {
		got, err := snowflake.ParseFormat(string(want))
		expect.Error(t, "ParseFormat "+string(want), err, nil)
		expect.Equal(t, "ParseFormat "+string(want), got, want)
	}
	got, err := snowflake.ParseFormat("")
	expect.Error(t, "ParseFormat of nothing", err, nil)
	expect.Equal(t, "ParseFormat of nothing", got, snowflake.FormatDecimal)
	_, err = snowflake.ParseFormat("Decimal")
	expect.Contains(t, "ParseFormat Decimal", fmt.Sprint(err), "decimal padded base36")
}

func TestStreamingIDsAllocatesNothing(t *testing.T) {
	buffer := make([]byte, 0, 1<<20)
	for _, format := range snowflake.Formats() {
		allocations := testing.AllocsPerRun(10, func() {
			buffer = buffer[:0]
			for id := range snowflake.ID(10_000) {
				buffer, _ = format.Append(buffer, 1169786042799259000+id, snowflake.Style{})
				buffer = append(buffer, '\n')
			}
		})
		expect.Equal(t, "allocations in format "+string(format), allocations, 0)
	}
}

// fuzz runs a parser on texts: what it takes, it must write again, and to the letter if it is
// strict.
func fuzz(f *testing.F, format snowflake.Format, strict bool) {
	style := snowflake.Style{Width: 12}
	seeds := []string{"", "0", "1", "-1", "zz", "ZZ", "9223372036854775807", "9223372036854775808", "AzL8n0Y58m7", "AzL8n0Y58m8", "7ZZZZZZZZZZZZ", "000000000042", "202001010000000000000042"}
	for _, seed := range seeds {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		id, err := format.Parse(text, style)
		if err != nil {
			if id != 0 || errors.Is(err, snowflake.ErrSyntax) == errors.Is(err, snowflake.ErrRange) {
				t.Fatalf("reading %q: got %d and error %v, want 0 and either %v or %v", text, id, err, snowflake.ErrSyntax, snowflake.ErrRange)
			}
			return
		}
		again, err := format.Append(nil, id, style)
		if id < 0 || err != nil || strict && string(again) != text {
			t.Fatalf("%q is %d, and that is %q, %v", text, id, again, err)
		}
		if back, err := format.Parse(string(again), style); back != id || err != nil {
			t.Fatalf("%q is %d, and %q is %d, %v", text, id, again, back, err)
		}
	})
}

func FuzzDecimal(f *testing.F) { fuzz(f, snowflake.FormatDecimal, true) }
func FuzzPadded(f *testing.F)  { fuzz(f, snowflake.FormatPadded, true) }
func FuzzBase36(f *testing.F)  { fuzz(f, snowflake.FormatBase36, true) }
func FuzzBase62(f *testing.F)  { fuzz(f, snowflake.FormatBase62, true) }
func FuzzBase32(f *testing.F)  { fuzz(f, snowflake.FormatBase32, false) }
func FuzzTimed(f *testing.F)   { fuzz(f, snowflake.FormatTimed, true) }

// JSON and database read the same texts.
func FuzzJSONAndScan(f *testing.F) {
	for _, seed := range []string{`"7"`, `7`, `7.0`, `-7`, `"007"`, `null`, `"`, `""`, `9007199254740992`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		id := snowflake.ID(42)
		if err := id.UnmarshalJSON([]byte(text)); err == nil && text != "null" {
			if want := fmt.Sprint(int64(id)); id < 0 || strings.Trim(text, `"`) != want {
				t.Fatalf("%q is %d", text, id)
			}
			if text[0] != '"' && id >= 1<<53 {
				t.Fatalf("the number %q was taken", text)
			}
		}
		scanned, parsed := snowflake.ID(42), snowflake.ID(42)
		errScan, errText := scanned.Scan(text), parsed.UnmarshalText([]byte(text))
		if (errScan == nil) != (errText == nil) || scanned != parsed {
			t.Fatalf("%q: %d, %v and %d, %v", text, scanned, errScan, parsed, errText)
		}
	})
}
