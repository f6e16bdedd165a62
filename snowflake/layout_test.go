package snowflake

import (
	"strings"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

func TestParseLayoutReadsWhatStringWrites(t *testing.T) {
	for text, want := range map[string]Layout{
		"41/10/12":    {41, 0, 10, 12, time.Millisecond},
		"41/5/5/12":   {41, 5, 5, 12, time.Millisecond},
		"31/10/12@s":  {31, 0, 10, 12, time.Second},
		"41/5/7":      {41, 0, 5, 7, time.Millisecond},
		"39/20/4":     {39, 0, 20, 4, time.Millisecond},
		"41/1/0":      {41, 0, 1, 0, time.Millisecond},
		"40/3/10/10":  {40, 3, 10, 10, time.Millisecond},
		"32/10/10/11": {32, 10, 10, 11, time.Millisecond},
	} {
		got, err := ParseLayout(text)
		if err != nil || got != want || got.String() != text {
			t.Errorf("%s: %+v, %v, written %s", text, got, err, got)
		}
	}
}

func TestParseLayoutRefuses(t *testing.T) {
	for text, why := range map[string]string{
		"":             "in bits",
		"41/10":        "in bits",
		"41/10/12/1/2": "in bits",
		"41/10/12@m":   "in bits",
		"-1/10/12":     "in bits",
		"41/10/13":     "64 bits",
		"19/10/12":     "20 at least",
		"41/0/12":      "at least 1 bit",
		"39/23/1":      "at most 22",
		"39/12/11/1":   "at most 22",
		"99/99/99":     "297 bits",
		"４１/10/12":     "in bits",
	} {
		if _, err := ParseLayout(text); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v, want one that says %q", text, err, why)
		}
	}
}

func TestLasts(t *testing.T) {
	layout, _ := ParseLayout("41/10/12")
	expect.Equal(t, "the year in which 41 bits of milliseconds from 2020 end", layout.Lasts(DefaultEpoch).Year(), 2089)
	layout, _ = ParseLayout("31/10/12@s")
	expect.Equal(t, "when 31 bits of seconds end", layout.Lasts(time.Unix(0, 0)).Unix(), 1<<31)
}

func FuzzParseLayout(f *testing.F) {
	for _, seed := range []string{"41/10/12", "41/5/5/12", "31/10/12@s", "1/2/3", "//", "99/99/99@s"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		layout, err := ParseLayout(text)
		if err != nil {
			return
		}
		again, err := ParseLayout(layout.String())
		if err != nil || again != layout {
			t.Fatalf("%q became %+v, and %q became %+v, %v", text, layout, layout, again, err)
		}
	})
}
