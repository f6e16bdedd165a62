package redisstore_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/redisstore"
)

type timedError time.Duration

func (timedError) Error() string               { return "not now" }
func (e timedError) RetryAfter() time.Duration { return time.Duration(e) }

func TestRetryAfterIsWhatTheFirstErrorOfTheTreeSays(t *testing.T) {
	for _, row := range []struct {
		err  error
		want time.Duration
	}{
		{nil, 0},
		{redisstore.ErrUnavailable, 0},
		{timedError(time.Second), time.Second},
		{fmt.Errorf("a: %w", errors.Join(errors.New("b"), fmt.Errorf("c: %w", timedError(2*time.Second)), timedError(time.Second))), 2 * time.Second},
	} {
		expect.Equal(t, fmt.Sprintf("RetryAfter(%v)", row.err), redisstore.RetryAfter(row.err), row.want)
	}
}
