//go:build check

package ids

import (
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/chaos/internal/chaostest"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/snowflake"
)

// field is a Redis and the processes that stamp with it.
type field struct{ *chaostest.Field }

// newField starts a Redis with two replicas, and processes in a role whose writes both replicas
// have to confirm.
func newField(t *testing.T, role string) *field {
	t.Helper()
	redis := redistest.StartSentinel(t, 2)
	f := &field{chaostest.NewField(t, role, redis.URL(), 2)}
	f.Redis = redis
	if role == "masked" {
		f.Patience = 8 * ttl
	}
	f.declare()
	f.Fill(*processes)
	return f
}

// stage notes what is broken from now on.
func (f *field) stage(name string) {
	f.Stage(time.Since(snowflake.DefaultEpoch).Milliseconds(), name)
}

// declare declares the pool new.
func (f *field) declare() {
	f.T.Helper()
	store, err := redisstore.Open(f.T.Context(), f.Store)
	expect.NoError(f.T, "redisstore.Open", err)
	defer store.Close()
	shape, _ := shape()
	expect.NoError(f.T, "declaring the pool", poolsOf(store).Create(f.T.Context(), pool, shape, ttl))
}
