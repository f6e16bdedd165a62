package scripts

import (
	"fmt"
	"strconv"
	"time"

	"github.com/coatcheck/coatcheck/internal/fault"
)

// Reply is a script's answer: the outcome in one word, then its values.
type Reply []string

// Word returns the outcome.
func (r Reply) Word() string { return r[0] }

// Values returns what follows the outcome.
func (r Reply) Values() []string { return r[1:] }

// Number reads one of the values, the first being 0. Its errors are those of Scan.
func (r Reply) Number(i int) (int64, error) {
	values := r.Values()
	if i >= len(values) {
		return 0, fmt.Errorf("%w: a reply of %d values where %d belong", fault.ErrUnknownOutcome, len(values), i+1)
	}
	n, err := strconv.ParseInt(values[i], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%w: value %d of the reply: %w", fault.ErrUnknownOutcome, i+1, err)
	}
	return n, nil
}

// Scan reads the values after the outcome in order: into *string, *int, *int64, *bool (0 or 1),
// *time.Time (milliseconds since 1970, as UTC) or *time.Duration (milliseconds). A reply that is
// too short or not a number is a script that breaks its contract: redisstore.ErrUnknownOutcome.
func (r Reply) Scan(into ...any) error {
	values := r.Values()
	if len(values) < len(into) {
		return fmt.Errorf("%w: a reply of %d values where %d belong", fault.ErrUnknownOutcome, len(values), len(into))
	}
	for i, target := range into {
		if err := scan(values[i], target); err != nil {
			return fmt.Errorf("%w: value %d of the reply: %w", fault.ErrUnknownOutcome, i+1, err)
		}
	}
	return nil
}

func scan(value string, target any) error {
	if text, ok := target.(*string); ok {
		*text = value
		return nil
	}
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil {
		return err
	}
	switch target := target.(type) {
	case *int:
		*target = int(n)
	case *int64:
		*target = n
	case *bool:
		*target = n != 0
	case *time.Time:
		*target = time.UnixMilli(n).UTC()
	case *time.Duration:
		*target = time.Duration(n) * time.Millisecond
	default:
		return fmt.Errorf("no way to read a value into %T", target)
	}
	return nil
}

// Unexpected is the error for an outcome that the caller does not know: a script of another
// version. What it did is not known.
func (r Reply) Unexpected() error {
	return fmt.Errorf("%w: a script answered %q", fault.ErrUnknownOutcome, r.Word())
}
