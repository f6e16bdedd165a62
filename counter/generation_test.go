package counter

import (
	"testing"
	"testing/synctest"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
)

// In a bubble no time passes between the two.
func TestCounterThatBeginsAnewTwiceAtOneInstantGoesBackBothTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(storetest.Open(t, redisstore.Config{URL: "embedded:"}), Config{})
		defer c.Close()
		other := New(c.store, Config{})
		defer other.Close()
		for range 3 {
			expect.Error(t, "Set", other.Set(t.Context(), "k", 500, 0), nil)
			got, err := c.Incr(t.Context(), "k")
			expect.Error(t, "Incr after Set to 500", err, nil)
			expect.Equal(t, "value after Set to 500", got, 501)
			expect.Error(t, "Reset", other.Reset(t.Context(), "k"), nil)
			got, err = c.Incr(t.Context(), "k")
			expect.Error(t, "Incr after Reset", err, nil)
			expect.Equal(t, "value after Reset", got, 1)
		}
	})
}
