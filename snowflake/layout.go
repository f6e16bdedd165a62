package snowflake

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/coatcheck/coatcheck/internal/lazyregexp"
)

// Layout is how an id's bits are shared, from the top:
//
//	0 | timestamp since the epoch, in units | datacenter | worker id | sequence
//
// It is written timestamp/worker/sequence or timestamp/datacenter/worker/sequence, in bits,
// followed by @s if the unit is a second instead of a millisecond: 41/10/12 is Twitter's Snowflake.
// The zero value is no layout; ParseLayout makes one, and New checks one made by hand.
type Layout struct {
	Timestamp, Datacenter, Worker, Sequence int           // bits
	Unit                                    time.Duration // a millisecond or a second
}

// Layouts by name, for ParseLayout. The years count from the epoch.
const (
	// DefaultLayout is the layout of a pool that names none: Twitter's bits, 69.7 years, and an
	// epoch that leaves them until 2089. 4,096 ids in a millisecond.
	DefaultLayout = "41/10/12"
	// DatacenterLayout is the same with the worker id's bits in two halves, as Twitter had them.
	DatacenterLayout = "41/5/5/12"
	// JavaScriptLayout has 53 bits, so that each id is a number that JavaScript can hold: 69.7
	// years, 32 worker ids, 128 ids in a millisecond.
	JavaScriptLayout = "41/5/7"
	// SecondsLayout counts seconds: 136 years, 1,024 worker ids, 2,097,152 ids in a second.
	SecondsLayout = "32/10/21@s"
)

// DefaultEpoch is the time origin of ids whose pool names none.
var DefaultEpoch = time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)

// MaxWorkerBits is the widest worker id of a layout, with the datacenter's: that of Baidu's
// uid-generator. Package workerlease leases narrower ones.
const MaxWorkerBits = 22

var layoutForm = lazyregexp.New(`^[0-9]{1,2}(/[0-9]{1,2}){2,3}(@s)?$`)

// ParseLayout reads a layout and checks that its ids fit a positive 64-bit integer and that each
// part has a use: a timestamp of 20 bits or more, datacenter and worker id together 1 to
// MaxWorkerBits, a sequence from 0. The error names the bound that is broken.
func ParseLayout(text string) (Layout, error) {
	if !layoutForm().MatchString(text) {
		return Layout{}, fmt.Errorf("layout %.40q: timestamp/worker/sequence or timestamp/datacenter/worker/sequence in bits, and @s "+
			"for seconds, such as %s", text, DefaultLayout)
	}
	parts, seconds := strings.CutSuffix(text, "@s")
	var bits []int
	for part := range strings.SplitSeq(parts, "/") {
		n, _ := strconv.Atoi(part) // one or two digits, by the form
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

// MustLayout is ParseLayout for texts that stand in a program: it panics where that fails.
func MustLayout(text string) Layout {
	layout, err := ParseLayout(text)
	if err != nil {
		panic(err)
	}
	return layout
}

func (l Layout) check() error {
	total := l.Timestamp + l.Datacenter + l.Worker + l.Sequence
	switch {
	case min(l.Timestamp, l.Datacenter, l.Worker, l.Sequence) < 0:
		return fmt.Errorf("layout %v: a part has less than 0 bits", l)
	case total > 63 || max(l.Timestamp, l.Datacenter, l.Worker, l.Sequence) > 63:
		return fmt.Errorf("layout %v has %d bits: 63 at most, so that ids are positive", l, total)
	case l.Timestamp < 20:
		return fmt.Errorf("layout %v: a timestamp of %d bits is used up at once: 20 at least", l, l.Timestamp)
	case l.Worker < 1 || l.Datacenter+l.Worker > MaxWorkerBits:
		return fmt.Errorf("layout %v: a worker id has at least 1 bit, and at most %d with the datacenter's", l, MaxWorkerBits)
	case l.Unit != time.Millisecond && l.Unit != time.Second:
		return fmt.Errorf("layout %v: its unit is %v instead of a millisecond or a second", l, l.Unit)
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

// Lasts returns the first time, counted from an epoch, that ids of this layout cannot stamp.
func (l Layout) Lasts(epoch time.Time) time.Time { return l.start(epoch, 1<<l.Timestamp) }

// Years is how long ids of this layout last, in years of 365.2425 days.
func (l Layout) Years() float64 {
	return math.Ldexp(l.Unit.Seconds(), l.Timestamp) / (365.2425 * 24 * 60 * 60)
}

// Max is the largest id of this layout.
func (l Layout) Max() ID { return 1<<(l.Timestamp+l.low()) - 1 }

// low is the number of bits below the timestamp.
func (l Layout) low() int { return l.Datacenter + l.Worker + l.Sequence }

// start is the moment at which a unit begins.
func (l Layout) start(epoch time.Time, unit int64) time.Time {
	perSecond := int64(time.Second / l.Unit)
	return time.Unix(epoch.Unix()+unit/perSecond, int64(epoch.Nanosecond())+unit%perSecond*int64(l.Unit)).UTC()
}

// units is how many whole units lie between the epoch and a moment, and how much of the next;
// negative before the epoch. What no layout can count is cut to more units than any has.
func (l Layout) units(epoch, moment time.Time) (whole int64, rest time.Duration) {
	seconds := moment.Unix() - epoch.Unix()
	if seconds > 1<<52 || seconds < -1<<52 {
		return max(min(seconds, 1), -1) << 62, 0
	}
	nanoseconds := time.Duration(moment.Nanosecond() - epoch.Nanosecond())
	if nanoseconds < 0 {
		seconds, nanoseconds = seconds-1, nanoseconds+time.Second
	}
	return seconds*int64(time.Second/l.Unit) + int64(nanoseconds/l.Unit), nanoseconds % l.Unit
}
