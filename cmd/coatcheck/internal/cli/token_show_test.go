package cli

import (
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// Some programs read .16 as 16 milliseconds: each time has three digits of a second.
func TestTimesOfATokenHaveThreeDigits(t *testing.T) {
	at := api.Time{Time: time.Date(2026, 11, 21, 8, 0, 0, 160_000_000, time.UTC)}
	lines := tokenLines(api.TokenStatus{State: "claimed", ExpiresAt: at, Fence: 1, LeaseUntil: at})
	expect.Contains(t, "token show", lines, "expires at   2026-11-21T08:00:00.160Z", "lease until  2026-11-21T08:00:00.160Z")
}
