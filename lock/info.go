package lock

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coatcheck/coatcheck/internal/names"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/scripts"
)

// shown is how many waiters are listed one by one, and how many holders, of which a summary shows
// fewer.
const (
	shown          = 100
	shownInSummary = 10
)

// Info is the holders and waiters of a lock, at one instant of the server's time.
type Info struct {
	Now     time.Time
	Mode    Mode     // "" if it has no holder
	Permits int      // permits there are, with ModePermits
	Fence   int64    // of the last grant that is remembered; 0 = none
	Holders []Holder // by fence, the smallest first: a hundred of them
	Further int      // number of holders that are not among those
	Queue   int      // number of waiters
	Waiters []Waiter // the first hundred of them, in order
}

// Holder is one holder of a lock. A plain client of redislock has no fence, no owner and no Since.
type Holder struct {
	Owner string
	Fence int64
	Since time.Time
	Until time.Time // unless it is renewed; zero = never
	Take  int
}

// Waiter is one waiter of a lock.
type Waiter struct {
	Owner string
	Mode  Mode
	Take  int
	Since time.Time
}

// Get returns the holders and waiters of a lock. A lock that is not in use has none.
func (l *Locks) Get(ctx context.Context, name string) (Info, error) {
	return l.get(ctx, name, shown, shown)
}

// Summary is [Locks.Get] for a list of locks: it shows ten holders and the first waiter.
func (l *Locks) Summary(ctx context.Context, name string) (Info, error) {
	return l.get(ctx, name, 1, shownInSummary)
}

func (l *Locks) get(ctx context.Context, name string, waiters, holders int) (Info, error) {
	if !names.Valid(name) {
		return Info{}, fmt.Errorf("%w: name", ErrInvalid)
	}
	reply, err := l.run(ctx, scripts.LockGet, l.keys(name)[:5], waiters, holders)
	if err != nil {
		return Info{}, err
	}
	if reply.Word() != "ok" {
		return Info{}, reply.Unexpected()
	}
	return readInfo(reply)
}

func readInfo(reply scripts.Reply) (Info, error) {
	var info Info
	mode, holders := "", 0
	if err := reply.Scan(&info.Now, &info.Fence, &mode, &info.Permits, &holders, &info.Queue, &info.Further); err != nil {
		return Info{}, err
	}
	info.Mode = modeOf(mode)
	for i, record := range reply.Values()[7:] {
		words := strings.SplitN(record, " ", 5)
		if err := info.read(words, i < holders); err != nil {
			return Info{}, fmt.Errorf("%w: record %d of the lock: %w", redisstore.ErrUnknownOutcome, i, err)
		}
	}
	slices.SortFunc(info.Holders, func(a, b Holder) int { return cmp.Compare(a.Fence, b.Fence) })
	return info, nil
}

// read adds one record of lock_get's reply.
func (i *Info) read(words []string, holder bool) error {
	if holder && len(words) == 5 {
		numbers, err := numbers(words[:4])
		if err == nil {
			i.Holders = append(i.Holders, Holder{Fence: numbers[0], Since: at(numbers[1]), Until: at(numbers[2]), Take: int(numbers[3]),
				Owner: words[4]})
		}
		return err
	}
	if !holder && len(words) == 4 {
		numbers, err := numbers(words[1:3])
		if err == nil {
			i.Waiters = append(i.Waiters, Waiter{Mode: modeOf(words[0]), Take: int(numbers[0]), Since: time.UnixMicro(numbers[1]).UTC(),
				Owner: words[3]})
		}
		return err
	}
	return fmt.Errorf("%d words", len(words))
}

func numbers(words []string) ([]int64, error) {
	found := make([]int64, len(words))
	for i, word := range words {
		n, err := strconv.ParseInt(word, 10, 64)
		if err != nil {
			return nil, err
		}
		found[i] = n
	}
	return found, nil
}

func at(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

func modeOf(letter string) Mode {
	for _, mode := range []Mode{ModeExclusive, ModeShared, ModePermits} {
		if mode.letter() == letter {
			return mode
		}
	}
	return ""
}

// Break takes a lock from the holder with that fence, as [Locks.Get] shows it; 0 is a plain client
// of redislock. It returns a new fence, larger than the holder's: a resource that has seen it
// refuses the holder from then on, and the holder learns of it at its next renewal. The lock goes
// to the next waiter. ErrNoHolder: there is no holder with that fence.
func (l *Locks) Break(ctx context.Context, name string, fence int64) (int64, error) {
	if !names.Valid(name) {
		return 0, fmt.Errorf("%w: name", ErrInvalid)
	}
	reply, err := l.run(ctx, scripts.LockBreak, l.keys(name), fence, l.settings)
	if err != nil {
		return 0, err
	}
	switch reply.Word() {
	case "broken":
		minted := int64(0)
		err = reply.Scan(&minted)
		return minted, err
	case "unknown":
		return 0, ErrNoHolder
	}
	return 0, reply.Unexpected()
}
