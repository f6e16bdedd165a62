package snowflake

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Layout is how an id's bits are shared, from the top:
//
//	0 | timestamp since the epoch, in units | datacenter | worker id | sequence
//
// It is written timestamp/worker/sequence or timestamp/datacenter/worker/sequence, in bits, with @s behind it where the unit is a second instead of a
// millisecond: 41/10/12 is Twitter's Snowflake. The zero value is no layout; Parse makes one.
type Layout struct {
	Timestamp, Datacenter, Worker, Sequence int           // bits
	Unit                                    time.Duration // a millisecond or a second
}

// DefaultLayout is the layout of a pool that names none: Twitter's bits, and an epoch that leaves them until 2089.
const DefaultLayout = "41/10/12"

// DefaultEpoch is the time origin of ids whose pool names none.
var DefaultEpoch = time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)

// MaxWorkerBits is the widest worker id that can be leased.
const MaxWorkerBits = 20

var layoutForm = regexp.MustCompile(`^[0-9]{1,2}(/[0-9]{1,2}){2,3}(@s)?$`)

// ParseLayout reads a layout and checks that its ids fit a positive 64-bit integer and that each part has a use: a timestamp of 20 bits or more,
// datacenter and worker id together 1 to 20, a sequence from 0. The error says which bound is broken.
func ParseLayout(text string) (Layout, error) {
	if !layoutForm.MatchString(text) {
		return Layout{}, fmt.Errorf("layout %.40q: timestamp/worker/sequence or timestamp/datacenter/worker/sequence in bits, and @s for seconds, such as %s", text, DefaultLayout)
	}
	parts, seconds := strings.CutSuffix(text, "@s")
	var bits []int
	for part := range strings.SplitSeq(parts, "/") {
		n, _ := strconv.Atoi(part) // one or two digits, as the form says
		bits = append(bits, n)
	}
	layout := Layout{Timestamp: bits[0], Worker: bits[len(bits)-2], Sequence: bits[len(bits)-1], Unit: time.Millisecond}
	if len(bits) == 4 {
		layout.Datacenter = bits[1]
	}
	if seconds {
		layout.Unit = time.Second
	}
	return layout, layout.check()
}

func (l Layout) check() error {
	total := l.Timestamp + l.Datacenter + l.Worker + l.Sequence
	switch {
	case total > 63:
		return fmt.Errorf("layout %v has %d bits: 63 at most, so that ids are positive", l, total)
	case l.Timestamp < 20:
		return fmt.Errorf("layout %v: a timestamp of %d bits is used up at once: 20 at least", l, l.Timestamp)
	case l.Worker < 1 || l.Datacenter+l.Worker > MaxWorkerBits:
		return fmt.Errorf("layout %v: a worker id has at least 1 bit, and at most %d with the datacenter's", l, MaxWorkerBits)
	}
	return nil
}

// String writes the layout as ParseLayout reads it, without leading zeros.
func (l Layout) String() string {
	text := fmt.Sprintf("%d/%d/%d", l.Timestamp, l.Worker, l.Sequence)
	if l.Datacenter > 0 {
		text = fmt.Sprintf("%d/%d/%d/%d", l.Timestamp, l.Datacenter, l.Worker, l.Sequence)
	}
	if l.Unit == time.Second {
		text += "@s"
	}
	return text
}

// Lasts returns the first moment that ids of this layout can not stamp any more, counted from an epoch.
func (l Layout) Lasts(epoch time.Time) time.Time {
	units := int64(1) << l.Timestamp
	seconds := units / int64(time.Second/l.Unit)
	return time.Unix(epoch.Unix()+seconds, int64(epoch.Nanosecond())).UTC()
}
