package client_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/client"
	"github.com/coatcheck/coatcheck/internal/onstore"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/scripts"
	"github.com/coatcheck/coatcheck/server"
	"github.com/coatcheck/coatcheck/snowflake"
	"github.com/coatcheck/coatcheck/workerlease"
)

func acquire(t testing.TB, c *client.Client, pool string, request client.WorkerRequest) client.WorkerLease {
	t.Helper()
	lease, err := c.AcquireWorker(t.Context(), pool, request)
	must(t, "AcquireWorker "+pool, err)
	return lease
}

func slot(t testing.TB, c *client.Client, pool string, worker int) api.WorkerSlot {
	t.Helper()
	ring, err := c.Ring(t.Context(), pool, worker, 1)
	must(t, "Ring "+pool, err)
	expect.MustEqual(t, "slots on a page of one", len(ring.Slots), 1)
	return ring.Slots[0]
}

func (s *service) workerRound(t *testing.T) {
	epoch := time.Date(2024, 2, 29, 1, 2, 3, 456e6, time.UTC)
	request := client.WorkerRequest{TTL: time.Hour, Identity: "orders-0", Layout: "41/5/5/12", Epoch: epoch, Datacenter: new(3)}
	lease := acquire(t, s.Client, "round", request)
	expect.Equal(t, "AcquireWorker", lease, client.WorkerLease{
		Pool: "round", WorkerID: 0, Datacenter: 3, Identity: "orders-0", TTL: time.Hour, Layout: "41/5/5/12", Epoch: epoch,
		NotBefore: lease.Now, NotAfter: lease.Now.Add(time.Hour),
	}, cmpopts.IgnoreFields(client.WorkerLease{}, "Token", "Fence", "Now"))
	later(t, lease.Fence, 0)
	renewed, err := s.RenewWorker(t.Context(), lease)
	succeeds(t, "RenewWorker", err)
	want := lease
	want.Now, want.NotAfter = renewed.Now, renewed.Now.Add(time.Hour)
	expect.Equal(t, "RenewWorker", renewed, want)
	if renewed.NotAfter.Before(lease.NotAfter) {
		t.Errorf("RenewWorker: the window ends at %v, want %v at the earliest", renewed.NotAfter, lease.NotAfter)
	}
	expect.Equal(t, "the slot of the lease", slot(t, s.Client, "round", 0), api.WorkerSlot{
		State: "held", Holder: "orders-0", Fence: lease.Fence, NotBefore: api.At(lease.NotBefore), NotAfter: api.At(renewed.NotAfter),
	})
	used := renewed.NotBefore.Add(30 * time.Minute)
	for range 2 { // a repeat is harmless
		succeeds(t, "ReleaseWorker", s.ReleaseWorker(t.Context(), renewed, used))
	}
	_, err = s.RenewWorker(t.Context(), renewed)
	wantError(t, err, client.ErrLost)
	again := acquire(t, s.Client, "round", client.WorkerRequest{Identity: "orders-0"})
	expect.Equal(t, "AcquireWorker by the same identity", again, client.WorkerLease{
		Pool: "round", WorkerID: 0, Datacenter: 3, Identity: "orders-0", TTL: time.Hour, Layout: "41/5/5/12", Epoch: epoch, NotBefore: used,
	}, cmpopts.IgnoreFields(client.WorkerLease{}, "Token", "Fence", "Now", "NotAfter"))
	later(t, again.Fence, lease.Fence)
	succeeds(t, "ReleaseWorker of the second lease", s.ReleaseWorker(t.Context(), again, time.Time{}))
	other := acquire(t, s.Client, "round", client.WorkerRequest{})
	expect.Equal(t, "the worker id of another", other.WorkerID, 1)
	wantError(t, s.ReleaseWorker(t.Context(), lease, used), client.ErrLost)
}

func (s *service) workerLost(t *testing.T) {
	lease := acquire(t, s.Client, "lost", client.WorkerRequest{TTL: 100 * time.Millisecond})
	expect.Eventually(t, "its window ends", func() bool { return slot(t, s.Client, "lost", 0).State == "free" })
	_, err := s.RenewWorker(t.Context(), lease)
	wantError(t, err, client.ErrLost)
	wantError(t, s.ReleaseWorker(t.Context(), lease, lease.NotBefore), client.ErrLost)
	without(t, "the error's text", err.Error(), lease.Token)
}

func (s *service) createdPool(t *testing.T) {
	epoch := time.Date(2021, 1, 1, 0, 0, 0, 0, time.UTC)
	shape := client.PoolShape{TTL: time.Hour, Layout: "41/5/5/12", Epoch: epoch, Datacenter: new(2)}
	want := api.WorkerPool{Pool: "created", Layout: "41/5/5/12", Epoch: api.At(epoch), Datacenter: 2, Size: 32, TTLMs: 3_600_000}
	want.EndsAt = api.At(snowflake.MustLayout(want.Layout).Lasts(epoch))
	pool, err := s.CreatePool(t.Context(), "created", shape)
	succeeds(t, "CreatePool", err)
	expect.Equal(t, "CreatePool", pool, want)
	_, err = s.CreatePool(t.Context(), "created", client.PoolShape{})
	expect.Contains(t, "CreatePool again", wantError(t, err, client.ErrPoolExists).Detail, "41/5/5/12")
	expect.Equal(t, "how often that error says why", strings.Count(err.Error(), client.ErrPoolExists.Error()), 1)
	for _, datacenter := range []int{0, 2} { // 0 is one like any other, and the rest stays
		want.Datacenter = datacenter
		pool, err = s.ReplacePool(t.Context(), "created", client.PoolShape{Datacenter: &datacenter})
		succeeds(t, "ReplacePool", err)
		expect.Equal(t, "ReplacePool", pool, want)
	}
	for name, request := range map[string]client.WorkerRequest{
		"ttl": {TTL: time.Minute}, "layout": {Layout: "41/10/12"}, "epoch": {Epoch: snowflake.DefaultEpoch}, "datacenter": {Layout: "41/5/5/12", Datacenter: new(0)},
	} {
		_, err := s.AcquireWorker(t.Context(), "created", request)
		expect.Error(t, "AcquireWorker with another "+name, err, client.ErrOtherPool)
	}
	lease := acquire(t, s.Client, "created", client.WorkerRequest{})
	expect.Equal(t, "the datacenter of a lease", lease.Datacenter, 2)
	expect.Equal(t, "the TTL of a lease", lease.TTL, time.Hour)
	ring, err := s.Ring(t.Context(), "created", 0, 10)
	succeeds(t, "Ring, the first ten slots", err)
	want.Used, want.Held = 1, 1
	expect.Equal(t, "Ring, the first ten slots", ring, api.WorkerRing{WorkerPool: want, Next: new(10)}, cmpopts.IgnoreFields(api.WorkerRing{}, "ServerTime", "Slots"))
	expect.Equal(t, "slots of the first page", len(ring.Slots), 10)
	if ring.ServerTime.IsZero() {
		t.Errorf("Ring, the first ten slots: got %+v, want the time", ring)
	}
	ring, err = s.Ring(t.Context(), "created", 30, 10)
	succeeds(t, "Ring, the last slots", err)
	expect.Equal(t, "Ring, the last slots", ring.Slots, []api.WorkerSlot{{WorkerID: 30, State: "free"}, {WorkerID: 31, State: "free"}})
	expect.Equal(t, "where the page after the last begins", ring.Next, (*int)(nil))
	_, err = s.Ring(t.Context(), "unheard-of", 0, 10)
	wantError(t, err, client.ErrNotFound)
	_, err = s.Ring(t.Context(), "created", 0, 0)
	wantError(t, err, client.ErrInvalid)
}

func (s *service) workersExhausted(t *testing.T) {
	for range 2 {
		acquire(t, s.Client, "full", client.WorkerRequest{Layout: "41/1/12", TTL: time.Hour})
	}
	_, err := s.AcquireWorker(t.Context(), "full", client.WorkerRequest{})
	failure := wantError(t, err, client.ErrExhausted)
	between(t, "the wait of the error for a pool that is exhausted", failure.Wait, time.Second, time.Hour)
	expect.Equal(t, "whether asking again may help", failure.Retryable, true)
}

func (s *service) pools(t *testing.T) {
	var want []string
	for n := range 102 { // more than a page
		want = append(want, fmt.Sprintf("listed-%03d", n))
		_, err := s.CreatePool(t.Context(), want[n], client.PoolShape{})
		must(t, "CreatePool "+want[n], err)
	}
	var got []string
	for pool, err := range s.Pools(t.Context(), "listed-") {
		must(t, "Pools", err)
		expect.Equal(t, "the size of the pool "+pool.Pool, pool.Size, 1024)
		got = append(got, pool.Pool)
	}
	expect.Equal(t, "Pools", got, want)
	for pool, err := range s.Pools(t.Context(), "") {
		if pool.Pool == "" || err != nil {
			t.Errorf("Pools, the first: got %+v, %v, want one with a name", pool, err)
		}
		break // nothing more is read
	}
	s.proxy.disturb(only("look", 1, says(502, "text/html", "bad gateway")))
	defer s.proxy.disturb(nil)
	n := 0
	for _, err := range s.Pools(t.Context(), "") {
		n++
		wantError(t, err, client.ErrUnavailable)
	}
	expect.Equal(t, "results of a list that cannot be read", n, 1)
}

// On a Redis that may have lost what it knew, the service grants nothing until every window that
// may be open has ended. What is held goes on meanwhile, by its proof.
func TestWorkerIDsOverTheLossOfAllState(t *testing.T) {
	store := open(t, "embedded:")
	s := serveWith(t, server.Config{Store: store, Workers: workerlease.Config{Skew: 500 * time.Millisecond, LongestTTL: time.Hour}})
	request := client.WorkerRequest{TTL: time.Hour, Identity: "holder"}
	_, err := s.AcquireWorker(t.Context(), "orders", request)
	failure := wantError(t, err, client.ErrQuarantined)
	between(t, "the wait of the error for a pool in quarantine", failure.Wait, time.Hour, time.Hour+time.Second)
	expect.Equal(t, "whether asking again may help", failure.Retryable, true)
	_, err = s.CreatePool(t.Context(), "orders", client.PoolShape{TTL: time.Hour})
	must(t, "CreatePool", err)
	lease := acquire(t, s.Client, "orders", request)
	released := acquire(t, s.Client, "orders", request)
	must(t, "ReleaseWorker", s.ReleaseWorker(t.Context(), released, time.Time{}))
	loseAll(t, store)
	_, err = s.AcquireWorker(t.Context(), "orders", request)
	wantError(t, err, client.ErrQuarantined)
	renewed, err := s.RenewWorker(t.Context(), lease)
	must(t, "RenewWorker after the loss", err)
	if renewed.NotAfter.Before(lease.NotAfter) {
		t.Errorf("RenewWorker after the loss: the window ends at %v, want %v at the earliest", renewed.NotAfter, lease.NotAfter)
	}
	expect.Equal(t, "the slot of the lease", slot(t, s.Client, "orders", lease.WorkerID), api.WorkerSlot{
		WorkerID: lease.WorkerID, State: "held", Holder: "holder", Fence: lease.Fence, NotBefore: api.At(lease.NotBefore), NotAfter: api.At(renewed.NotAfter),
	})
	_, err = s.AcquireWorker(t.Context(), "orders", request)
	wantError(t, err, client.ErrQuarantined)

	// Only the whole proof brings a lease back.
	loseAll(t, store)
	less := renewed
	less.Identity, less.Layout = "", ""
	_, err = s.RenewWorker(t.Context(), less)
	wantError(t, err, client.ErrLost)
}

func TestARenewalSendsTheWholeProof(t *testing.T) {
	s := embedded(t)
	lease := acquire(t, s.Client, "orders", client.WorkerRequest{Identity: "me", Layout: "41/5/5/12", Datacenter: new(7)})
	var sent map[string]any
	s.proxy.disturb(only("renew", 0, func(_ http.ResponseWriter, r *http.Request, _ http.Handler) bool {
		sent = readJSON(t, r)
		expect.Equal(t, "the header Lease-Token", r.Header.Get("Lease-Token"), lease.Token)
		without(t, "the request's URL", r.URL.String(), lease.Token)
		return false
	}))
	_, err := s.RenewWorker(t.Context(), lease)
	must(t, "RenewWorker", err)
	want := map[string]any{
		"ttl_ms": 30000.0, "not_after": lease.NotAfter.Format(api.TimeFormat), "fence": float64(lease.Fence), "identity": "me",
		"layout": "41/5/5/12", "epoch": "2020-01-01T00:00:00.000Z", "datacenter": 7.0,
	}
	expect.Equal(t, "the body of the renewal", sent, want)
}

// workerWrites asks for each write about worker ids.
func workerWrites(c *client.Client, lease client.WorkerLease) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"acquire": func(ctx context.Context) error {
			_, err := c.AcquireWorker(ctx, lease.Pool, client.WorkerRequest{})
			return err
		},
		"renew":     func(ctx context.Context) error { _, err := c.RenewWorker(ctx, lease); return err },
		"give back": func(ctx context.Context) error { return c.ReleaseWorker(ctx, lease, time.Time{}) },
	}
}

func TestALostReplyAboutAWorkerIDIsAnUnknownOutcomeAndNothingIsSentTwice(t *testing.T) {
	s := embedded(t)
	for verb := range workerWrites(nil, client.WorkerLease{}) {
		for name, lose := range map[string]fault{"served": loseReply, "not served": hangUp, "cut off": cutOff, "proxy": says(502, "text/html", "bad gateway")} {
			t.Run(verb+" "+name, func(t *testing.T) {
				s.proxy.disturb(nil)
				lease := acquire(t, s.Client, "orders", client.WorkerRequest{})
				s.proxy.disturb(lose)
				before := s.proxy.count(verb)
				err := workerWrites(s.Client, lease)[verb](t.Context())
				wantError(t, err, client.ErrUnknownOutcome)
				expect.Equal(t, "how often it was sent", s.proxy.count(verb)-before, 1)
				without(t, "the error's text", err.Error(), lease.Token)
			})
		}
	}
}

// An answer of which a part is missing or impossible is none: nothing may be stamped with it.
func TestAGrantThatIsNotWholeIsAnUnknownOutcome(t *testing.T) {
	const good = `{"worker_id":31,"lease":"lease","fence":7,"not_before":"2026-01-01T00:00:00Z","not_after":"2026-01-01T00:00:30Z","ttl_ms":30000,"renew_every_ms":10000,` +
		`"layout":"41/5/5/12","epoch":"2020-01-01T00:00:00Z","datacenter":31,"server_time":"2026-01-01T00:00:00Z","newer":[1]}`
	answer := func(status int, body string) *client.Client { return answering(t, status, body) }
	lease := acquire(t, answer(201, good), "orders", client.WorkerRequest{})
	expect.Equal(t, "the worker id of a whole grant", lease.WorkerID, 31)
	for from, to := range map[string]string{
		`:31,"lease"`: `:32,"lease"`, `"worker_id":31`: `"worker_id":-1`, `"lease":"lease"`: `"lease":""`, `"fence":7`: `"fence":0`, `"not_before"`: `"other"`,
		`00:00:30Z`: `00:00:00Z`, `"ttl_ms":30000`: `"ttl_ms":0`, `41/5/5/12`: `64/10/12`, `"epoch"`: `"other"`, `"datacenter":31`: `"datacenter":32`, `"server_time"`: `"other"`,
		good: `null`, `,"newer":[1]}`: ``,
	} {
		_, err := answer(201, strings.Replace(good, from, to, 1)).AcquireWorker(t.Context(), "orders", client.WorkerRequest{})
		wantError(t, err, client.ErrUnknownOutcome, "replaced", from+" by "+to)
	}
	_, err := answer(200, good).AcquireWorker(t.Context(), "orders", client.WorkerRequest{})
	wantError(t, err, client.ErrUnknownOutcome)

	const renewed = `{"worker_id":31,"not_after":"2026-01-01T00:00:40Z","ttl_ms":30000,"renew_every_ms":10000,"server_time":"2026-01-01T00:00:10Z"}`
	got, err := answer(200, renewed).RenewWorker(t.Context(), lease)
	succeeds(t, "RenewWorker", err)
	expect.Equal(t, "how much later the window ends", got.NotAfter.Sub(lease.NotAfter), 10*time.Second)
	expect.Equal(t, "how much later it is", got.Now.Sub(lease.Now), 10*time.Second)
	for from, to := range map[string]string{
		`:31`: `:30`, `"not_after"`: `"other"`, `:40Z`: `:29Z`, `"ttl_ms":30000`: `"ttl_ms":0`, `"server_time"`: `"other"`, renewed: `{}`,
	} {
		_, err := answer(200, strings.Replace(renewed, from, to, 1)).RenewWorker(t.Context(), lease)
		wantError(t, err, client.ErrUnknownOutcome, "replaced", from+" by "+to)
	}
	for _, body := range []string{`{}`, `{"pools":null}`, `{"pools":[],"next":""`} {
		for _, err := range answer(200, body).Pools(t.Context(), "") {
			wantError(t, err, client.ErrUnavailable, "body", body)
		}
	}
	pages := 0
	// a list that goes round
	for _, err := range answer(200, `{"pools":[],"next":"a"}`).Pools(t.Context(), "") {
		pages++
		wantError(t, err, client.ErrUnavailable)
	}
	expect.Equal(t, "results of a list that goes round", pages, 1)
}

func TestSnowflakeIDsOfTheService(t *testing.T) {
	var path string
	body := `{"pool":"orders","worker_id":3,"ids":["7","9223372036854775807"]}`
	c := faced(t, func(w http.ResponseWriter, r *http.Request, _ http.Handler) bool {
		path = r.URL.RequestURI()
		return says(200, "application/json", body)(w, r, nil)
	})
	for pool, want := range map[string]string{"orders": "/id/snowflake/orders?n=2", "": "/id/snowflake?n=2"} {
		ids, err := c.SnowflakeIDs(t.Context(), pool, 2)
		succeeds(t, "SnowflakeIDs", err)
		expect.Equal(t, "SnowflakeIDs", ids, []snowflake.ID{7, 1<<63 - 1})
		expect.Equal(t, "the path that was asked", path, want)
	}
	for _, wrong := range []string{`{"ids":["7"]}`, `{"ids":["7","8","9"]}`, `{"ids":["7","-8"]}`, `{"ids":["7","9223372036854775808"]}`, `{"ids":[7,9007199254740993]}`, `{}`} {
		body = wrong
		_, err := c.SnowflakeIDs(t.Context(), "", 2)
		// nothing that counts was done: ask again
		wantError(t, err, client.ErrUnavailable, "wrong", wrong)
	}
}

// loseAll empties a store.
func loseAll(t testing.TB, store *redisstore.Store) {
	t.Helper()
	do(t, store, "redis.call('FLUSHALL')", "any")
}

// do runs a script on a store that does what no script of ours would.
func do(t testing.TB, store *redisstore.Store, text string, keys ...string) {
	t.Helper()
	text += " return {'ok'}"
	_, err := onstore.Run(t.Context(), store, scripts.New("test", text), keys)
	must(t, text, err)
}
