package stamper_test

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/coatcheck/coatcheck/internal/stamper"
	"github.com/coatcheck/coatcheck/internal/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/scripts"
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
}

// bubble runs a test on the embedded store with a clock of its own, which stands while anybody works.
func bubble(t *testing.T, config stamper.Config, leases workerlease.Config, test func(*testing.T, bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(snowflake.DefaultEpoch.AddDate(6, 0, 0))) // a bubble's clock begins in 2000
		b := on(t, storetest.Open(t, redisstore.Config{}), config, leases)
		test(t, b)
	})
}

func on(t *testing.T, store *redisstore.Store, config stamper.Config, leases workerlease.Config) bench {
	pools := workerlease.New(store, leases)
	b := bench{stamper.New(pools, config), store, pools}
	t.Cleanup(func() { b.Close(t.Context()) })
	return b
}

var trust = workerlease.Config{NewPools: workerlease.Trust}

// take stamps n ids and checks that they rise, and that each is of the grant that is told and of a moment near now.
func (b bench) take(t testing.TB, pool string, n int) ([]snowflake.ID, stamper.Origin) {
	t.Helper()
	ids := make([]snowflake.ID, n)
	origin, err := b.Stamp(t.Context(), pool, ids)
	if err != nil {
		t.Fatalf("%s: %v", pool, err)
	}
	for i, id := range ids {
		parts := origin.Layout.Decode(id, origin.Epoch)
		if parts.Worker != origin.WorkerID {
			t.Fatalf("%d is of worker id %d, and %d is told", id, parts.Worker, origin.WorkerID)
		}
		if apart := time.Since(parts.Time); apart < -snowflake.MaxLead || apart > time.Second {
			t.Fatalf("%d is of %v, %v from now", id, parts.Time, apart)
		}
		if i > 0 && id <= ids[i-1] {
			t.Fatalf("%d came behind %d", id, ids[i-1])
		}
	}
	return ids, origin
}

// refusal is why no id of a pool is stamped.
func (b bench) refusal(t testing.TB, pool string) error {
	t.Helper()
	_, err := b.Stamp(t.Context(), pool, make([]snowflake.ID, 1))
	if err == nil {
		t.Fatalf("%s: an id was stamped", pool)
	}
	return err
}

func (b bench) wantUnavailable(t testing.TB, pool, reason string) {
	t.Helper()
	err := b.refusal(t, pool)
	unavailable, ok := errors.AsType[*stamper.Unavailable](err)
	if !ok || !errors.Is(err, stamper.ErrUnavailable) || !strings.Contains(unavailable.Reason, reason) || errors.Is(err, redisstore.ErrUnknownOutcome) {
		t.Errorf("%v, want %q", err, reason)
	}
}

// slot is worker id 0 of a pool as Redis has it.
func (b bench) slot(t testing.TB, pool string) workerlease.Slot {
	t.Helper()
	ring, err := b.pools.Ring(t.Context(), pool, 0, 1)
	if err != nil {
		t.Fatal(err)
	}
	return ring.Slots[0]
}

// run changes the store behind everybody's back.
func (b bench) run(t testing.TB, source string, keys ...string) {
	t.Helper()
	script := &scripts.Script{Name: "test", Source: source + " return {'ok'}", SHA: strings.Repeat("0", 40)} // not known: the store sends the source
	if _, err := b.store.Run(t.Context(), script, keys); err != nil {
		t.Fatal(err)
	}
}

// lose forgets a pool.
func (b bench) lose(t testing.TB, pool string) {
	t.Helper()
	b.run(t, "redis.call('DEL', KEYS[1], KEYS[2], KEYS[3])", b.store.Key("worker", pool), b.store.Key("worker", pool, "ends"), b.store.Key("worker", pool, "names"))
}

func shape(t testing.TB, text string) workerlease.Shape {
	t.Helper()
	layout := snowflake.MustLayout(text)
	return workerlease.Shape{Layout: text, Bits: layout.Worker, Epoch: snowflake.DefaultEpoch}
}

func (b bench) create(t testing.TB, pool, layout string) {
	t.Helper()
	if err := b.pools.Create(t.Context(), pool, shape(t, layout), 0); err != nil {
		t.Fatal(err)
	}
}
