package client_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/client"
	"github.com/coatcheck/coatcheck/internal/redistest"
	"github.com/coatcheck/coatcheck/internal/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/server"
	"github.com/coatcheck/coatcheck/snowflake"
	"github.com/coatcheck/coatcheck/workerlease"
)

func acquire(t testing.TB, c *client.Client, pool string, request client.WorkerRequest) client.WorkerLease {
	t.Helper()
	lease, err := c.AcquireWorker(t.Context(), pool, request)
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

func slot(t testing.TB, c *client.Client, pool string, worker int) client.Slot {
	t.Helper()
	ring, err := c.Ring(t.Context(), pool, worker, 1)
	if err != nil || len(ring.Slots) != 1 {
		t.Fatalf("%+v, %v", ring, err)
	}
	return ring.Slots[0]
}

func TestWorkerIDs(t *testing.T) {
	storetest.Each(t, func(t *testing.T, store *redisstore.Store) {
		s := serve(t, store)
		t.Run("a lease is granted, renewed, seen and given back", s.workerRound)
		t.Run("a lease that has ended is lost", s.workerLost)
		t.Run("a pool is what it was created as", s.createdPool)
		t.Run("a pool that is exhausted says when to come again", s.workersExhausted)
		t.Run("pools are listed page by page", s.pools)
	})
}

func (s *service) workerRound(t *testing.T) {
	epoch := time.Date(2024, 2, 29, 1, 2, 3, 456e6, time.UTC)
	request := client.WorkerRequest{TTL: 20 * time.Second, Identity: "orders-0", Layout: "41/5/5/12", Epoch: epoch, Datacenter: new(3)}
	lease := acquire(t, s.Client, "round", request)
	if lease.Pool != "round" || lease.WorkerID != 0 || lease.Datacenter != 3 || lease.Fence <= 0 || lease.Identity != "orders-0" || lease.TTL != 20*time.Second ||
		lease.Layout != "41/5/5/12" || lease.Bits != 5 || !lease.Epoch.Equal(epoch) || !lease.NotBefore.Equal(lease.Now) || lease.NotAfter.Sub(lease.NotBefore) != lease.TTL {
		t.Errorf("%+v", lease)
	}
	renewed, err := s.RenewWorker(t.Context(), lease)
	if err != nil || renewed.NotAfter.Before(lease.NotAfter) || renewed.NotAfter.Sub(renewed.Now) != lease.TTL || renewed.Token != lease.Token || !renewed.NotBefore.Equal(lease.NotBefore) {
		t.Errorf("%+v, %v", renewed, err)
	}
	if got := slot(t, s.Client, "round", 0); got.State != "held" || got.Identity != "orders-0" || got.Fence != lease.Fence || !got.NotAfter.Equal(renewed.NotAfter) {
		t.Errorf("%+v", got)
	}
	used := renewed.NotBefore.Add(5 * time.Second)
	for range 2 { // a repeat is harmless
		if err := s.ReleaseWorker(t.Context(), renewed, used); err != nil {
			t.Error(err)
		}
	}
	_, err = s.RenewWorker(t.Context(), renewed)
	wantError(t, err, client.ErrLost)
	again := acquire(t, s.Client, "round", client.WorkerRequest{Identity: "orders-0"})
	if again.WorkerID != 0 || !again.NotBefore.Equal(used) || again.Fence <= lease.Fence || again.Datacenter != 3 || again.TTL != lease.TTL {
		t.Errorf("%+v behind %v", again, used)
	}
	if err := s.ReleaseWorker(t.Context(), again, time.Time{}); err != nil {
		t.Error(err)
	}
	other := acquire(t, s.Client, "round", client.WorkerRequest{})
	if other.WorkerID != 1 {
		t.Errorf("%+v", other)
	}
	wantError(t, s.ReleaseWorker(t.Context(), lease, used), client.ErrLost)
}

func (s *service) workerLost(t *testing.T) {
	lease := acquire(t, s.Client, "lost", client.WorkerRequest{TTL: 100 * time.Millisecond})
	eventually(t, "its window ends", func() bool { return slot(t, s.Client, "lost", 0).State == "free" })
	_, err := s.RenewWorker(t.Context(), lease)
	wantError(t, err, client.ErrLost)
	wantError(t, s.ReleaseWorker(t.Context(), lease, lease.NotBefore), client.ErrLost)
	if text := err.Error(); strings.Contains(text, lease.Token) {
		t.Error(text)
	}
}

func (s *service) createdPool(t *testing.T) {
	epoch := time.Date(2021, 1, 1, 0, 0, 0, 0, time.UTC)
	shape := client.PoolShape{TTL: 15 * time.Second, Layout: "41/5/5/12", Epoch: epoch, Datacenter: 2}
	want := client.Pool{Name: "created", Layout: "41/5/5/12", Epoch: epoch, Datacenter: 2, Size: 32, TTL: 15 * time.Second}
	if pool, err := s.CreatePool(t.Context(), "created", shape); err != nil || pool != want {
		t.Errorf("%+v, %v", pool, err)
	}
	_, err := s.CreatePool(t.Context(), "created", client.PoolShape{})
	if said := wantError(t, err, client.ErrPoolExists); !strings.Contains(said.Detail, "41/5/5/12") {
		t.Errorf("%v", err)
	}
	for name, request := range map[string]client.WorkerRequest{
		"ttl": {TTL: time.Minute}, "layout": {Layout: "41/10/12"}, "epoch": {Epoch: snowflake.DefaultEpoch}, "datacenter": {Layout: "41/5/5/12", Datacenter: new(0)},
	} {
		if _, err := s.AcquireWorker(t.Context(), "created", request); !errors.Is(err, client.ErrOtherPool) {
			t.Errorf("another %s: %v", name, err)
		}
	}
	if lease := acquire(t, s.Client, "created", client.WorkerRequest{}); lease.Datacenter != 2 || lease.TTL != 15*time.Second {
		t.Errorf("%+v", lease)
	}
	if ring, err := s.Ring(t.Context(), "created", 0, 10); err != nil || ring.Used != 1 || len(ring.Slots) != 10 || ring.Next != 10 || ring.Now.IsZero() {
		t.Errorf("%+v, %v", ring, err)
	}
	if ring, err := s.Ring(t.Context(), "created", 30, 10); err != nil || len(ring.Slots) != 2 || ring.Next != 0 || ring.Slots[1].WorkerID != 31 || ring.Slots[1].State != "free" {
		t.Errorf("%+v, %v", ring, err)
	}
	_, err = s.Ring(t.Context(), "unheard-of", 0, 10)
	wantError(t, err, client.ErrNotFound)
	_, err = s.Ring(t.Context(), "created", 0, 0)
	wantError(t, err, client.ErrInvalidRequest)
}

func (s *service) workersExhausted(t *testing.T) {
	for range 2 {
		acquire(t, s.Client, "full", client.WorkerRequest{Layout: "41/1/12", TTL: 20 * time.Second})
	}
	_, err := s.AcquireWorker(t.Context(), "full", client.WorkerRequest{})
	if said := wantError(t, err, client.ErrExhausted); said.RetryAfter < time.Second || said.RetryAfter > 20*time.Second || !said.Retryable {
		t.Errorf("%+v", said)
	}
}

func (s *service) pools(t *testing.T) {
	var want []string
	for n := range 102 { // more than a page
		want = append(want, fmt.Sprintf("listed-%03d", n))
		if _, err := s.CreatePool(t.Context(), want[n], client.PoolShape{}); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for pool, err := range s.Pools(t.Context(), "listed-") {
		if err != nil || pool.Size != 1024 {
			t.Fatalf("%+v, %v", pool, err)
		}
		got = append(got, pool.Name)
	}
	if !slices.Equal(got, want) {
		t.Errorf("%v", got)
	}
	for pool, err := range s.Pools(t.Context(), "") {
		if pool.Name == "" || err != nil {
			t.Errorf("%+v, %v", pool, err)
		}
		break // nothing more is read
	}
	s.line.disturb(only("look", 1, says(502, "text/html", "bad gateway")))
	defer s.line.disturb(nil)
	n := 0
	for _, err := range s.Pools(t.Context(), "") {
		n++
		wantError(t, err, client.ErrUnavailable)
	}
	if n != 1 {
		t.Errorf("%d results of a list that can not be read", n)
	}
}

// On a Redis that may have lost what it knew, the service grants nothing until every window that may be open has ended. What is held goes on meanwhile, by its proof.
func TestWorkerIDsOverTheLossOfAllState(t *testing.T) {
	redis := redistest.Start(t)
	store := storetest.Open(t, redisstore.Config{URL: redis.URL()})
	s := serveWith(t, server.Config{Store: store, Workers: workerlease.Config{Skew: 500 * time.Millisecond}})
	request := client.WorkerRequest{TTL: time.Hour, Identity: "holder"}
	_, err := s.AcquireWorker(t.Context(), "orders", request)
	if said := wantError(t, err, client.ErrQuarantined); said.RetryAfter < time.Hour || said.RetryAfter > time.Hour+time.Second || !said.Retryable {
		t.Errorf("%+v", said)
	}
	if _, err := s.CreatePool(t.Context(), "orders", client.PoolShape{TTL: time.Hour}); err != nil {
		t.Fatal(err)
	}
	lease := acquire(t, s.Client, "orders", request)
	released := acquire(t, s.Client, "orders", request)
	if err := s.ReleaseWorker(t.Context(), released, time.Time{}); err != nil {
		t.Fatal(err)
	}
	flush(t, redis)
	_, err = s.AcquireWorker(t.Context(), "orders", request)
	wantError(t, err, client.ErrQuarantined)
	renewed, err := s.RenewWorker(t.Context(), lease)
	if err != nil || renewed.NotAfter.Before(lease.NotAfter) {
		t.Fatalf("%+v, %v", renewed, err)
	}
	if got := slot(t, s.Client, "orders", lease.WorkerID); got.State != "held" || got.Identity != "holder" || got.Fence != lease.Fence || !got.NotBefore.Equal(lease.NotBefore) {
		t.Errorf("%+v", got)
	}
	_, err = s.AcquireWorker(t.Context(), "orders", request)
	wantError(t, err, client.ErrQuarantined)

	// Only the whole proof brings a lease back.
	flush(t, redis)
	less := renewed
	less.Identity, less.Layout = "", ""
	_, err = s.RenewWorker(t.Context(), less)
	wantError(t, err, client.ErrLost)
}

func TestARenewalSendsTheWholeProof(t *testing.T) {
	s := embedded(t)
	lease := acquire(t, s.Client, "orders", client.WorkerRequest{Identity: "me", Layout: "41/5/5/12", Datacenter: new(7)})
	var sent map[string]any
	s.line.disturb(only("renew", 0, func(_ http.ResponseWriter, r *http.Request, _ http.Handler) bool {
		sent = readJSON(t, r)
		if r.Header.Get("Lease-Token") != lease.Token || strings.Contains(r.URL.String(), lease.Token) {
			t.Errorf("%s %v", r.URL, r.Header)
		}
		return false
	}))
	if _, err := s.RenewWorker(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"ttl_ms": 30000.0, "not_after": lease.NotAfter.Format(time.RFC3339Nano), "fence": float64(lease.Fence), "identity": "me",
		"layout": "41/5/5/12", "epoch": "2020-01-01T00:00:00Z", "datacenter": 7.0,
	}
	if fmt.Sprint(sent) != fmt.Sprint(want) {
		t.Errorf("sent %v, want %v", sent, want)
	}
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
				s.line.disturb(nil)
				lease := acquire(t, s.Client, "orders", client.WorkerRequest{})
				s.line.disturb(lose)
				before := s.line.count(verb)
				err := workerWrites(s.Client, lease)[verb](t.Context())
				wantError(t, err, client.ErrUnknownOutcome)
				if n := s.line.count(verb) - before; n != 1 || strings.Contains(err.Error(), lease.Token) {
					t.Errorf("sent %d times: %v", n, err)
				}
			})
		}
	}
}

// What is no lease or no pool would be another path.
func TestWhatIsNoPoolOrLeaseIsNotSent(t *testing.T) {
	c := connect(t, listen(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { t.Errorf("%s %s", r.Method, r.URL) })))
	lease := client.WorkerLease{Pool: "orders", Token: "a-lease"}
	for _, pool := range []string{"", ".", "..", "a/b", "a b", "a?b", "a%2Fb", "ä", strings.Repeat("a", 201)} {
		other := lease
		other.Pool = pool
		for verb, write := range workerWrites(c, other) {
			if err := write(t.Context()); !errors.Is(err, client.ErrInvalidRequest) {
				t.Errorf("%s of %q: %v", verb, pool, err)
			}
		}
		_, err := c.CreatePool(t.Context(), pool, client.PoolShape{})
		wantError(t, err, client.ErrInvalidRequest)
		_, err = c.Ring(t.Context(), pool, 0, 1)
		wantError(t, err, client.ErrInvalidRequest)
		if pool != "" {
			_, err = c.SnowflakeIDs(t.Context(), pool, 1)
			wantError(t, err, client.ErrInvalidRequest)
		}
	}
	for _, wrong := range []client.WorkerLease{{}, {Pool: "orders"}, {Pool: "orders", Token: "a b"}, {Pool: "orders", Token: "a-lease", WorkerID: -1}} {
		_, err := c.RenewWorker(t.Context(), wrong)
		wantError(t, err, client.ErrInvalidRequest)
		wantError(t, c.ReleaseWorker(t.Context(), wrong, time.Time{}), client.ErrInvalidRequest)
	}
}

// An answer of which a part is missing or impossible is none: nothing may be stamped with it.
func TestAGrantThatIsNotWholeIsAnUnknownOutcome(t *testing.T) {
	const good = `{"worker_id":31,"lease":"lease","fence":7,"not_before":"2026-01-01T00:00:00Z","not_after":"2026-01-01T00:00:30Z","ttl_ms":30000,"renew_every_ms":10000,` +
		`"layout":"41/5/5/12","epoch":"2020-01-01T00:00:00Z","datacenter":31,"server_time":"2026-01-01T00:00:00Z","newer":[1]}`
	answer := func(status int, body string) *client.Client {
		return connect(t, listen(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { says(status, "application/json", body)(w, nil, nil) })))
	}
	if lease := acquire(t, answer(201, good), "orders", client.WorkerRequest{}); lease.WorkerID != 31 || lease.Bits != 5 {
		t.Errorf("%+v", lease)
	}
	for from, to := range map[string]string{
		`:31,"lease"`: `:32,"lease"`, `"worker_id":31`: `"worker_id":-1`, `"lease":"lease"`: `"lease":""`, `"fence":7`: `"fence":0`, `"not_before"`: `"other"`,
		`00:00:30Z`: `00:00:00Z`, `"ttl_ms":30000`: `"ttl_ms":0`, `41/5/5/12`: `64/10/12`, `"epoch"`: `"other"`, `"datacenter":31`: `"datacenter":32`, `"server_time"`: `"other"`,
		good: `null`, `,"newer":[1]}`: ``,
	} {
		_, err := answer(201, strings.Replace(good, from, to, 1)).AcquireWorker(t.Context(), "orders", client.WorkerRequest{})
		wantError(t, err, client.ErrUnknownOutcome)
	}
	_, err := answer(200, good).AcquireWorker(t.Context(), "orders", client.WorkerRequest{})
	wantError(t, err, client.ErrUnknownOutcome)

	lease := acquire(t, answer(201, good), "orders", client.WorkerRequest{})
	const renewed = `{"worker_id":31,"not_after":"2026-01-01T00:00:40Z","ttl_ms":30000,"renew_every_ms":10000,"server_time":"2026-01-01T00:00:10Z"}`
	if got, err := answer(200, renewed).RenewWorker(t.Context(), lease); err != nil || got.NotAfter.Sub(lease.NotAfter) != 10*time.Second || got.Now.Sub(lease.Now) != 10*time.Second {
		t.Errorf("%+v, %v", got, err)
	}
	for from, to := range map[string]string{
		`:31`: `:30`, `"not_after"`: `"other"`, `:40Z`: `:29Z`, `"ttl_ms":30000`: `"ttl_ms":0`, `"server_time"`: `"other"`, renewed: `{}`,
	} {
		_, err := answer(200, strings.Replace(renewed, from, to, 1)).RenewWorker(t.Context(), lease)
		wantError(t, err, client.ErrUnknownOutcome)
	}
	for _, body := range []string{`{}`, `{"pools":null}`, `{"pools":[],"next":""`} {
		for _, err := range answer(200, body).Pools(t.Context(), "") {
			wantError(t, err, client.ErrUnavailable)
		}
	}
	pages := 0
	for _, err := range answer(200, `{"pools":[],"next":"a"}`).Pools(t.Context(), "") { // a list that goes round
		pages++
		wantError(t, err, client.ErrUnavailable)
	}
	if pages != 1 {
		t.Errorf("%d pages", pages)
	}
}

func TestSnowflakeIDsOfTheService(t *testing.T) {
	var path string
	body := `{"pool":"orders","worker_id":3,"ids":["7","9223372036854775807"]}`
	c := connect(t, listen(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path = r.URL.RequestURI()
		says(200, "application/json", body)(w, nil, nil)
	})))
	for pool, want := range map[string]string{"orders": "/id/snowflake/orders?n=2", "": "/id/snowflake?n=2"} {
		if ids, err := c.SnowflakeIDs(t.Context(), pool, 2); err != nil || !slices.Equal(ids, []snowflake.ID{7, 1<<63 - 1}) || path != want {
			t.Errorf("%v, %v from %s", ids, err, path)
		}
	}
	for _, wrong := range []string{`{"ids":["7"]}`, `{"ids":["7","8","9"]}`, `{"ids":["7","-8"]}`, `{"ids":["7","9223372036854775808"]}`, `{"ids":[7,9007199254740993]}`, `{}`} {
		body = wrong
		_, err := c.SnowflakeIDs(t.Context(), "", 2)
		wantError(t, err, client.ErrUnavailable) // nothing that counts was done: ask again
	}
}

func flush(t testing.TB, redis *redistest.Server) {
	t.Helper()
	if err := redis.Client().FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
}
