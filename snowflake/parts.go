package snowflake

import (
	"fmt"
	"time"
)

// Parts are what an id is made of.
type Parts struct {
	Time       time.Time // when its unit begins, in UTC
	Datacenter int       // 0 where the layout has none
	Worker     int
	Sequence   int64
}

// Decode takes an id apart. It cannot show whether the id was made with this layout and epoch:
// another pair gives other parts. An id above Max has a Time that the layout cannot stamp, and a
// negative one has no meaning.
func (l Layout) Decode(id ID, epoch time.Time) Parts {
	n := int64(id)
	return Parts{
		Time:       l.start(epoch, n>>l.low()),
		Datacenter: int(n >> (l.Worker + l.Sequence) & (1<<l.Datacenter - 1)),
		Worker:     int(n >> l.Sequence & (1<<l.Worker - 1)),
		Sequence:   n & (1<<l.Sequence - 1),
	}
}

// Encode puts an id together. A time within a unit counts as the unit's beginning. Parts that do
// not fit are refused with ErrRange or ErrMisfit.
func (l Layout) Encode(parts Parts, epoch time.Time) (ID, error) {
	if err := l.check(); err != nil {
		return 0, err
	}
	unit, _ := l.units(epoch, parts.Time)
	if unit < 0 || unit >= 1<<l.Timestamp {
		return 0, fmt.Errorf("%w: %v: layout %v counts from %v until %v", ErrRange, parts.Time, l, epoch, l.Lasts(epoch))
	}
	if parts.Sequence < 0 || parts.Sequence >= 1<<l.Sequence {
		return 0, fmt.Errorf("%w: sequence %d: layout %v: 0 to %d", ErrRange, parts.Sequence, l, int64(1)<<l.Sequence-1)
	}
	if err := l.fits(parts.Datacenter, parts.Worker); err != nil {
		return 0, err
	}
	return ID(unit<<l.low() | l.identity(parts.Datacenter, parts.Worker) | parts.Sequence), nil
}

// identity is datacenter and worker id in their place.
func (l Layout) identity(datacenter, worker int) int64 {
	return (int64(datacenter)<<l.Worker | int64(worker)) << l.Sequence
}
