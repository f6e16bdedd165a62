package config

import (
	"errors"
	"strconv"
	"strings"
	"time"
)

// ParseDuration reads a duration as time.ParseDuration does, before which whole days may stand:
// 90d, 1d12h. A day is 24 hours.
func ParseDuration(text string) (time.Duration, error) {
	number, rest, found := strings.Cut(text, "d")
	if !found {
		return time.ParseDuration(text)
	}
	const day, mostDays = 24 * time.Hour, 36_500
	days, err := strconv.ParseUint(number, 10, 32)
	if err != nil || days > mostDays {
		return 0, errors.New("not a whole number of days, 36500 at most")
	}
	if rest == "" {
		return time.Duration(days) * day, nil
	}
	hours, err := time.ParseDuration(rest)
	if err != nil || hours < 0 || hours >= day || rest[0] == '+' || rest[0] == '-' {
		return 0, errors.New("less than a day belongs after the days")
	}
	return time.Duration(days)*day + hours, nil
}
