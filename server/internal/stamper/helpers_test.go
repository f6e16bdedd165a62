package stamper_test

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/goleak"

	"github.com/coatcheck/coatcheck/internal/onstore"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/scripts"
	"github.com/coatcheck/coatcheck/server/internal/stamper"
	"github.com/coatcheck/coatcheck/snowflake"
	"github.com/coatcheck/coatcheck/workerlease"
)

func TestMain(m *testing.M) {
	redisstore.LogTo(slog.New(slog.DiscardHandler)) // stores that are away are part of these tests
	goleak.VerifyTestMain(m)
}

// bench is a stamper and what lies behind it.
type bench struct {
	*stamper.Stamper
	store *redisstore.Store
	pools *workerlease.Pools
	late  time.Duration // how far behind its clock may be: by what a reply of the store takes
}

// bubble runs a test on the embedded store with a clock of its own, which stands while any
// goroutine runs.
func bubble(t *testing.T, config stamper.Config, leases workerlease.Config, test func(*testing.T, bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		// a bubble's clock begins in 2000
		time.Sleep(time.Until(snowflake.DefaultEpoch.AddDate(6, 0, 0)))
		b := on(t, storetest.Open(t, redisstore.Config{}), config, leases)
		b.late = time.Second
		test(t, b)
	})
}

func on(t *testing.T, store *redisstore.Store, config stamper.Config, leases workerlease.Config) bench {
	pools := workerlease.New(store, leases)
	b := bench{stamper.New(pools, config), store, pools, time.Minute}
	t.Cleanup(func() { b.Close(t.Context()) })
	return b
}

var trust = workerlease.Config{NewPools: workerlease.NewPoolsTrust}

// take stamps n ids and checks that they rise, and that each is of the grant that is told and of a
// moment near now.
func (b bench) take(t testing.TB, pool string, n int) ([]snowflake.ID, stamper.Origin) {
	t.Helper()
	ids := make([]snowflake.ID, n)
	earliest := time.Now().Add(-b.late)
	origin, err := b.Stamp(t.Context(), pool, ids)
	expect.NoError(t, fmt.Sprintf("stamping %d ids of pool %s", n, pool), err)
	for i, id := range ids {
		parts := origin.Layout.Decode(id, origin.Epoch)
		if parts.Worker != origin.WorkerID {
			t.Fatalf("id %d is of worker id %d, want the one that is told, %d", id, parts.Worker, origin.WorkerID)
		}
		if parts.Time.Before(earliest) || time.Until(parts.Time) > snowflake.MaxLead {
			t.Fatalf("id %d is of %v, want from %v to %v after now", id, parts.Time, earliest, snowflake.MaxLead)
		}
		if i > 0 && id <= ids[i-1] {
			t.Fatalf("id %d came after %d, want ids to rise", id, ids[i-1])
		}
	}
	return ids, origin
}

// wantStatus wants these pools, and no others, to be told, each with its worker id held.
func (b bench) wantStatus(t testing.TB, pools ...string) {
	t.Helper()
	var told []string
	for _, status := range b.Status() {
		told = append(told, status.Pool)
		expect.Equal(t, "Status: pool "+status.Pool+" is held", status.Held, true)
	}
	expect.Equal(t, "Status: pools", told, pools, cmpopts.EquateEmpty())
}

// refusal is why no id of a pool is stamped.
func (b bench) refusal(t testing.TB, pool string) error {
	t.Helper()
	_, err := b.Stamp(t.Context(), pool, make([]snowflake.ID, 1))
	if err == nil {
		t.Fatalf("stamping an id of pool %s: got one, want a refusal", pool)
	}
	return err
}

func (b bench) wantUnavailable(t testing.TB, pool, reason string) {
	t.Helper()
	err := b.refusal(t, pool)
	unavailable, ok := errors.AsType[*stamper.UnavailableError](err)
	if !ok || !strings.Contains(unavailable.Reason, reason) || errors.Is(err, redisstore.ErrUnknownOutcome) {
		t.Errorf("stamping an id of pool %s: got error %v, want Unavailable with a reason that says %q, and no unknown outcome", pool, err, reason)
	}
	expect.Error(t, "stamping an id of pool "+pool, err, stamper.ErrUnavailable)
}

// slot is worker id 0 of a pool as Redis has it.
func (b bench) slot(t testing.TB, pool string) workerlease.Slot {
	t.Helper()
	ring, err := b.pools.Ring(t.Context(), pool, 0, 1)
	expect.NoError(t, "the ring of pool "+pool, err)
	return ring.Slots[0]
}

// wantSlot wants worker id 0 of a pool to be in a state.
func (b bench) wantSlot(t testing.TB, pool string, state workerlease.SlotState) {
	t.Helper()
	expect.Equal(t, "state of worker id 0 of pool "+pool, b.slot(t, pool).State, state)
}

// run changes the store directly, unseen by the stamper.
func (b bench) run(t testing.TB, source string, keys ...string) {
	t.Helper()
	// not known: the store sends the source
	script := scripts.New("test", source+" return {'ok'}")
	if _, err := onstore.Run(t.Context(), b.store, script, keys); err != nil {
		t.Fatalf("running %q: %v", source, err)
	}
}

// lose forgets a pool.
func (b bench) lose(t testing.TB, pool string) {
	t.Helper()
	b.run(t, "redis.call('DEL', KEYS[1], KEYS[2], KEYS[3])", onstore.Key(b.store, "worker", pool), onstore.Key(b.store,
		"worker", pool, "ends"), onstore.Key(b.store, "worker", pool, "names"))
}

func shape(t testing.TB, text string) workerlease.Shape {
	t.Helper()
	return workerlease.Shape{Layout: text, Epoch: snowflake.DefaultEpoch}
}

func (b bench) create(t testing.TB, pool, layout string) {
	t.Helper()
	expect.NoError(t, fmt.Sprintf("creating pool %s with layout %s", pool, layout), b.pools.Create(t.Context(), pool, shape(t, layout), 0))
}
