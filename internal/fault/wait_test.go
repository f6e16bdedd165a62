package fault

import (
	"errors"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// A remaining wait is a difference of local times: people have no use for its nanoseconds.
func TestWaitIsSaidInMilliseconds(t *testing.T) {
	err := &WaitError{Err: errors.New("not now"), Wait: 29_517_961_737 * time.Nanosecond, Text: ", for {wait}"}
	expect.Equal(t, "text", err.Error(), "not now, for 29.518s")
}
