package config

import (
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

func TestDurationsTakeDays(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"90d": 2160 * time.Hour, "1d12h": 36 * time.Hour, "0d1ms": time.Millisecond, "36500d": 876_000 * time.Hour, "1.5h": 90 * time.Minute,
	} {
		got, err := ParseDuration(text)
		expect.Error(t, "the error of "+text, err, nil)
		expect.Equal(t, "the duration "+text, got, want)
	}
	for _, text := range []string{"", "d", "1.5d", "-1d", "+1d", "36501d", "99999999999999999999d", "1d24h", "1d-1h", "1d+1h", "1d1", "1h1d", "1dd", "1 d"} {
		if got, err := ParseDuration(text); err == nil {
			t.Errorf("the duration %q: got %v, want an error", text, got)
		}
	}
}

func TestEverySpanTakesDays(t *testing.T) {
	var span time.Duration
	expect.Error(t, "a setting of 2d", Span("keep", "1s", 0, 100*time.Hour, "", &span).Parse("2d"), nil)
	expect.Equal(t, "a setting of 2d", span, 48*time.Hour)
	pins, err := parsePools("{orders: {ttl: 1d}}")
	expect.Error(t, "a pool's TTL of 1d", err, nil)
	expect.Equal(t, "a pool's TTL of 1d", pins["orders"].TTL, 24*time.Hour)
}
