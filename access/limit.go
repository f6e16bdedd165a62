package access

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/coatcheck/coatcheck/internal/lazyregexp"
	"github.com/coatcheck/coatcheck/limit"
)

// Limit is how often a principal may ask. The zero value is no limit.
type Limit struct {
	Rate Rate
	// requests at once beyond the even flow; 0 = as many as the rate gives in a second, 1 at least
	Burst int
}

// Rate is a number of requests in a span of time, written 100/s, 30/m or 1000/h. The zero value is
// none. In JSON it is written in the same way, as a text.
type Rate struct {
	N   int           `json:"n"`
	Per time.Duration `json:"per"` // a second, a minute or an hour
}

const (
	maxRate  = 1_000_000
	maxBurst = 1_000_000
)

var (
	rateForm  = lazyregexp.New(`^([1-9][0-9]{0,6})/(s|m|h)$`)
	rateSpans = map[string]time.Duration{"s": time.Second, "m": time.Minute, "h": time.Hour}
)

// ParseRate reads a rate.
func ParseRate(text string) (Rate, error) {
	parts := rateForm().FindStringSubmatch(text)
	if parts == nil {
		return Rate{}, errors.New("a rate is written 100/s, 30/m or 1000/h")
	}
	n, err := strconv.Atoi(parts[1])
	if err != nil || n > maxRate {
		return Rate{}, fmt.Errorf("a rate is up to %d", maxRate)
	}
	return Rate{n, rateSpans[parts[2]]}, nil
}

// String is the rate as it is written; "" for none.
func (r Rate) String() string {
	for unit, span := range rateSpans {
		if r.Per == span && r.N > 0 {
			return strconv.Itoa(r.N) + "/" + unit
		}
	}
	return ""
}

// MarshalText implements encoding.TextMarshaler.
func (r Rate) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (r *Rate) UnmarshalText(text []byte) (err error) {
	if len(text) == 0 {
		*r = Rate{}
		return nil
	}
	*r, err = ParseRate(string(text))
	return err
}

// None reports whether there is no limit.
func (l Limit) None() bool { return l.Rate.N == 0 }

// every is the time between two requests of the even flow.
func (l Limit) every() time.Duration { return l.Rate.Per / time.Duration(l.Rate.N) }

// rate is the limit as package limit counts it: the burst and the one of the even flow at once, or
// as many as are free again within the longest time that it takes.
func (l Limit) rate() limit.Rate {
	burst := l.Burst
	if burst == 0 {
		burst = max(1, int(time.Second/l.every()))
	}
	most := min(limit.MaxN, int(limit.MaxReset/l.every()))
	return limit.Rate{N: l.Rate.N, Per: l.Rate.Per, Burst: min(burst+1, most)}
}
