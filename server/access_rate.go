package server

import (
	"errors"
	"fmt"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/coatcheck/coatcheck/access"
	"github.com/coatcheck/coatcheck/redisstore"
)

// rateLimit counts a request of its caller, and refuses it if there were too many. Its headers are
// those of draft-ietf-httpapi-ratelimit-headers.
func (a *admission) rateLimit(c echo.Context, caller access.Caller) error {
	if caller.Limit.None() {
		return nil
	}
	state, err := a.limiter.Take(c.Request().Context(), caller.Principal, caller.Limit)
	if often, is := errors.AsType[*access.TooOftenError](err); is {
		state.Full = often.Wait // the moment of Retry-After
	}
	if err == nil || state.Size > 0 {
		header := c.Response().Header()
		header.Set("Ratelimit-Policy", fmt.Sprintf(`"principal";q=%d;w=%d`, state.Size, seconds(state.Whole)))
		header.Set("Ratelimit", fmt.Sprintf(`"principal";r=%d;t=%d`, state.Left, seconds(state.Full)))
	}
	if err != nil && !errors.Is(err, access.ErrTooOften) { // the request has ended
		return fmt.Errorf("%w: %w", redisstore.ErrUnavailable, err)
	}
	return err
}

// seconds rounds up.
func seconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }
