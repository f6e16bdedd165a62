package cli

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/coatcheck/coatcheck/cmd/coatcheck/internal/config"
	"github.com/coatcheck/coatcheck/internal/names"
	numbers "github.com/coatcheck/coatcheck/number"
)

// keptBehind is how long the counter of a period is kept after its end, as the service keeps it.
const keptBehind = 48 * time.Hour

// splitKey takes a date off a counter's key: orders:{yyyyMMdd} is orders and {yyyyMMdd}.
func splitKey(text string) (key, calendar string, err error) {
	plain, _, dated := strings.Cut(text, "{")
	if dated {
		colon := strings.LastIndexByte(plain, ':')
		if colon < 0 {
			return "", "", fmt.Errorf("%q: a date stands after a colon, as in orders:{yyyyMMdd}", text)
		}
		text, calendar = text[:colon], text[colon+1:]
	}
	if !names.InPath(text) {
		return "", "", fmt.Errorf("%q cannot be a counter's key: %s, and after a colon a date such as {yyyyMMdd}", text, names.Rule)
	}
	return text, calendar, nil
}

// dated is a counter, and its period by a date in its key.
type dated struct {
	key    string
	period numbers.Period // zero = the counter does not begin anew
}

// oneOf finds the counter of a command that does not add. The date is that of this machine's clock.
func oneOf(text, zone string, now time.Time) (one dated, err error) {
	key, calendar, err := splitKey(text)
	switch {
	case err != nil:
		return one, usageError{err}
	case calendar == config.Unsaid && zone != config.Unsaid:
		return one, usageError{errors.New("--zone: there is no date in KEY")}
	case calendar == config.Unsaid:
		return dated{key: key}, nil
	}
	clock, err := time.LoadLocation(zone) // "" is UTC
	if err != nil {
		return one, usageError{err}
	}
	parsed, err := numbers.ParseCalendarKey(key+":"+calendar, clock)
	if err == nil {
		one.key, one.period, err = parsed.At(now.In(clock))
	}
	if err != nil {
		return one, usageError{err}
	}
	return one, nil
}

// ttl is how long the counter is to live from now on by default; 0 = for ever.
func (d dated) ttl(said time.Duration, now time.Time) time.Duration {
	if said != 0 || d.period.Label == "" {
		return said
	}
	return (d.period.Until.Sub(now) + keptBehind).Truncate(time.Millisecond)
}

// zoneName is a time zone by its name; empty is UTC.
func zoneName(name, help string, into *string) *config.Setting {
	return config.Checked(name, "name", help, func(s string) error {
		// which is another one on another machine
		if _, err := time.LoadLocation(s); err != nil || s == "Local" {
			return fmt.Errorf("%q is not a time zone such as Europe/Berlin", s)
		}
		return nil
	}, into)
}
