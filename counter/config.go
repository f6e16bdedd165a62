package counter

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/coatcheck/coatcheck/internal/lazyregexp"
)

// Defaults and bounds of a [Config].
const (
	DefaultMargin    = 1_000_000 // without acknowledgement by replicas
	DefaultAckMargin = 10_000    // with
	DefaultHoldOff   = 5 * time.Second
	DefaultMaxKeys   = 100_000
	MaxMargin        = 1_000_000_000_000
)

// AfterLoss is what to do with a counter that has visibly gone back, or was last used under another
// incarnation of the server.
type AfterLoss string

// The choices after a loss.
const (
	// AfterLossMovePast moves it past everything that can have been handed out: [Config.Margin]
	// above the larger of what is there and what this process has seen. The default. A request
	// whose Limit the move would pass moves nothing, and gets [ErrBehind].
	AfterLossMovePast AfterLoss = "move-past"
	// AfterLossRefuse returns [ErrBehind] until the counter is set.
	AfterLossRefuse AfterLoss = "refuse"
	// AfterLossStay goes on from the larger of what is there and what this process has seen: values
	// that were lost come twice. It is for counts of something, such as tries: see
	// [Request.AfterLoss].
	AfterLossStay AfterLoss = "stay"
)

// Config is what the counters of a store share. The zero value of each field means its documented
// default. It must be the same in all processes that use the same counters.
type Config struct {
	// the part of Redis keys that distinguishes these counters from others; "" = counter
	Kind      string
	AfterLoss AfterLoss // "" = AfterLossMovePast
	// how far a counter moves at least, to MaxMargin; 0 = DefaultMargin, or DefaultAckMargin where
	// the store waits for replicas
	Margin int64
	// how long nothing is added after a loss of everything, while processes report what they have
	// seen; 1s to 1m; 0 = DefaultHoldOff
	HoldOff time.Duration
	// of how many keys this process remembers what it has seen, at least 100; the longest unused
	// are forgotten; 0 = DefaultMaxKeys
	MaxKeys int
	Logger  *slog.Logger // nil = slog.Default()
}

func (c Config) withDefaults(ack int) Config {
	c.Kind = cmp.Or(c.Kind, "counter")
	c.AfterLoss = cmp.Or(c.AfterLoss, AfterLossMovePast)
	if c.Margin == 0 {
		c.Margin = DefaultMargin
		if ack != 0 {
			c.Margin = DefaultAckMargin
		}
	}
	c.HoldOff = cmp.Or(c.HoldOff, DefaultHoldOff)
	c.MaxKeys = cmp.Or(c.MaxKeys, DefaultMaxKeys)
	c.Logger = cmp.Or(c.Logger, slog.Default())
	return c
}

var kindForm = lazyregexp.New(`^[a-z]{1,20}$`)

// Check returns every fault of a configuration, with the bound that it breaks.
func (c Config) Check() error {
	c = c.withDefaults(0)
	var faults []error
	if !kindForm().MatchString(c.Kind) {
		faults = append(faults, fmt.Errorf("counter: kind %q: 1 to 20 small letters", c.Kind))
	}
	if c.AfterLoss != AfterLossMovePast && c.AfterLoss != AfterLossRefuse {
		faults = append(faults, fmt.Errorf("counter: after a loss %q: %s or %s", c.AfterLoss, AfterLossMovePast, AfterLossRefuse))
	}
	if c.Margin < 1 || c.Margin > MaxMargin {
		faults = append(faults, fmt.Errorf("counter: margin %d: 1 to %d", c.Margin, int64(MaxMargin)))
	}
	if c.HoldOff < time.Second || c.HoldOff > time.Minute {
		faults = append(faults, fmt.Errorf("counter: hold-off %v: 1s to 1m", c.HoldOff))
	}
	if c.MaxKeys < 100 {
		faults = append(faults, fmt.Errorf("counter: max keys %d: at least 100", c.MaxKeys))
	}
	return errors.Join(faults...)
}
