package server_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/server"
)

// What Redis proves to have lost nothing costs nothing, in a service that goes on and in one that
// is new: a counter goes on at the next value, a template too, a worker id is granted at once, and
// a tag of segments leaves no more than the ranges of a process.
func TestWhatLosesNothingCostsNothing(t *testing.T) {
	t.Parallel()
	durable := []string{"--appendonly", "yes", "--appendfsync", "always"}
	for name, start := range map[string]func(t *testing.T) (url string, happens func()){
		"a restart in order": func(t *testing.T) (string, func()) {
			redis := redistest.Start(t, durable...)
			return redis.URL(), func() { redis.Stop(); redis.Restart() }
		},
		"a restart after kill -9": func(t *testing.T) (string, func()) {
			redis := redistest.Start(t, durable...)
			return redis.URL(), func() { redis.Kill(); redis.Restart() }
		},
		"a backup": func(t *testing.T) (string, func()) {
			redis := redistest.Start(t)
			return redis.URL(), func() { copied(t, redis) }
		},
		"a failover of Sentinel": func(t *testing.T) (string, func()) {
			set := redistest.StartSentinel(t, 1)
			return set.URL(), func() { failedOver(set) }
		},
		"a failover to a replica whose statistics were reset": func(t *testing.T) (string, func()) {
			set := redistest.StartSentinel(t, 1)
			return set.URL(), func() {
				expect.NoError(t, "CONFIG RESETSTAT", set.Replicas()[0].Client().ConfigResetStat(t.Context()).Err())
				failedOver(set)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, happens := start(t)
			open := func() *service {
				return serve(t, server.Config{
					Store: storetest.Open(t,
						redisstore.Config{URL: url, Ack: redisstore.AckAll, AckTimeout: 10 * time.Second, Timeout: storePatience}),
					SegmentStep: 10,
				})
			}
			before := open()
			must[api.WorkerPool](t, before, 201, "PUT", "/worker/orders", `{"ttl_ms":3600000}`)
			leased := map[int]bool{}
			use := func(s *service, when string, number int64) {
				t.Helper()
				got := must[api.Incremented](t, s, 200, "POST", "/incr/orders?template=ORD-%7Bn:4%7D", "")
				expect.Equal(t, "the number "+when, got.Value, number)
				worker := must[api.WorkerLease](t, s, 201, "POST", "/worker/orders", "")
				expect.Equal(t, "worker id "+strconv.Itoa(worker.WorkerID)+" "+when+" was granted before", leased[worker.WorkerID], false)
				leased[worker.WorkerID] = true
				id, err := strconv.ParseInt(s.segmentIDs(t, "orders").ID, 10, 64)
				if err != nil || id > 1000 {
					t.Errorf("the id of a segment %s: got %d, %v, want no jump", when, id, err)
				}
			}
			use(before, "at first", 1)
			happens()
			before.wantReady(t)
			use(open(), "in a new service", 2)
			use(before, "in the service that goes on", 3)
		})
	}
}

func failedOver(set *redistest.SentinelSet) {
	old := set.Master()
	old.Kill()
	set.WaitForMaster(old)
	old.Restart() // as a replica, to confirm
}

// copied makes a copy of a server, upon which it renames its history.
func copied(t *testing.T, redis *redistest.Server) {
	t.Helper()
	id := func() string {
		text, err := redis.Client().Info(t.Context(), "replication").Result()
		expect.MustEqual(t, "error of INFO", err, nil)
		_, rest, _ := strings.Cut(text, "master_replid:")
		id, _, _ := strings.Cut(rest, "\r")
		return id
	}
	was := id()
	redis.Backup()
	expect.Eventually(t, "the server has another master_replid", func() bool { return id() != was })
}
