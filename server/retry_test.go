package server_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/access"
	"github.com/coatcheck/coatcheck/counter"
	"github.com/coatcheck/coatcheck/idempotency"
	"github.com/coatcheck/coatcheck/internal/fault"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/lock"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/segment"
	"github.com/coatcheck/coatcheck/server"
	"github.com/coatcheck/coatcheck/server/internal/stamper"
	"github.com/coatcheck/coatcheck/workerlease"
)

// A source of segments hands each error in. The document of the interface does not expect it there.
func TestWaitThatAnErrorNamesIsToldAsRetryAfter(t *testing.T) {
	t.Parallel()
	const wait = 2500 * time.Millisecond // told in whole seconds, rounded up
	for _, row := range []struct {
		err  error
		want string
	}{
		{&access.TooOftenError{Wait: wait}, "3"},
		{&fault.WaitError{Err: workerlease.ErrExhausted, Wait: wait}, "3"},
		{&fault.WaitError{Err: workerlease.ErrQuarantined, Wait: wait}, "3"},
		{&fault.WaitError{Err: stamper.ErrTooMany, Wait: wait}, "3"},
		{&fault.WaitError{Err: counter.ErrHoldOff, Wait: wait}, "3"},
		{&fault.WaitError{Err: lock.ErrInDoubt, Wait: wait}, "3"},
		{&lock.HeldError{Left: wait}, "3"},
		{&lock.HeldError{Left: -1}, ""},
		{&fault.WaitError{Err: idempotency.ErrInProgress, Wait: wait}, "3"},
		{&fault.WaitError{Err: idempotency.ErrAttemptRunning, Wait: wait}, "3"},
		{fmt.Errorf("somewhere: %w", &fault.WaitError{Err: lock.ErrInDoubt, Wait: wait}), "3"},
		{lock.ErrLost, ""},
		// no wait is named, and the state passes
		{access.ErrNotRead, "1"},
		{segment.ErrBadRange, "1"},
	} {
		s := server.New(server.Config{Store: storetest.Open(t, redisstore.Config{}), SegmentSource: sourceFunc(func(string, int64) rangeOrError { return rangeOrError{err: row.err} })})
		answer := httptest.NewRecorder()
		s.Handler().ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "http://localhost/id/segment/t", nil))
		expect.Equal(t, fmt.Sprintf("Retry-After of %T: %v", row.err, row.err), answer.Header().Get("Retry-After"), row.want)
		expect.Error(t, "closing the server", s.Close(t.Context()), nil)
	}
}
