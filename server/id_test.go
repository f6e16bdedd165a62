package server_test

import (
	"fmt"
	"math"
	"slices"
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
	"github.com/coatcheck/coatcheck/snowflake"
	"github.com/coatcheck/coatcheck/workerlease"
)

func TestSnowflakeIDsOverHTTP(t *testing.T) {
	t.Parallel()
	storetest.Each(t, func(t *testing.T, store *redisstore.Store) {
		s := serve(t, server.Config{Store: store, IDPool: "main", Identity: "host-1"})
		t.Run("one, and as many as were asked for", s.idsOfTheDefaultPool)
		t.Run("of the pool that the path names", s.idsOfAPool)
		t.Run("in every format", s.idFormats)
		t.Run("as bare digits", s.idsAsText)
		t.Run("of an exhausted pool are refused with its wait", s.idsExhausted)
		t.Run("are decoded as they were stamped", s.idsDecoded)
	})
}

func (s *service) ids(t testing.TB, path string) api.Snowflakes {
	t.Helper()
	return must[api.Snowflakes](t, s, 200, "GET", path, "")
}

// wantAroundNow fails the test if a time is not of now. Ten minutes are more than a busy machine
// takes between a stamp and its check, and less than a wrong epoch or zone makes.
func wantAroundNow(t testing.TB, what string, at time.Time) {
	t.Helper()
	if now := time.Now(); now.Sub(at).Abs() > 10*time.Minute {
		t.Errorf("%s: got %v, want about %v", what, at, now)
	}
}

// numbers reads ids in decimal, and checks that they rise and are of one worker id and of now.
func numbers(t testing.TB, got api.Snowflakes) (ids []snowflake.ID) {
	t.Helper()
	layout := snowflake.MustLayout(snowflake.DefaultLayout)
	for i, text := range got.IDs {
		id, err := snowflake.Parse(text)
		expect.NoError(t, fmt.Sprintf("id %q of pool %s", text, got.Pool), err)
		parts := layout.Decode(id, snowflake.DefaultEpoch)
		wantAroundNow(t, "time of id "+text, parts.Time)
		expect.MustEqual(t, "worker id of id "+text, parts.Worker, got.WorkerID)
		if i > 0 && id <= ids[i-1] {
			t.Fatalf("%d ids of pool %s: id %d at place %d comes after %d, want them to rise", len(got.IDs), got.Pool, id, i, ids[i-1])
		}
		ids = append(ids, id)
	}
	return ids
}

func (s *service) idsOfTheDefaultPool(t *testing.T) {
	a := s.do(t, "GET", "/id/snowflake", "")
	one := decode[api.Snowflakes](t, a, 200)
	a.wantHeader(t, "Cache-Control", "no-store")
	a.wantHeader(t, "Content-Type", "application/json")
	a.wantBody(t, fmt.Sprintf(`{"pool":"main","worker_id":0,"id":%q,"ids":[%q]}`+"\n", one.ID, one.ID))
	last := numbers(t, one)[0]
	for _, n := range []int{1, 2, 255, 256, 257, 5000, 10_000} {
		got := s.ids(t, "/id/snowflake?n="+strconv.Itoa(n))
		ids := numbers(t, got)
		expect.MustEqual(t, fmt.Sprintf("ids with n=%d", n), len(ids), n)
		expect.Equal(t, fmt.Sprintf("the one id with n=%d", n), got.ID, "")
		if ids[0] <= last {
			t.Errorf("n=%d: ids begin with %d, want more than %d, which came before", n, ids[0], last)
		}
		last = ids[n-1]
	}
	slot := must[api.WorkerRing](t, s, 200, "GET", "/worker/main?n=1", "").Slots[0]
	expect.Equal(t, "GET /worker/main?n=1: state", slot.State, "held")
	expect.Equal(t, "GET /worker/main?n=1: holder", slot.Holder, "host-1")
}

func (s *service) idsOfAPool(t *testing.T) {
	// another has worker id 0
	must[api.WorkerLease](t, s, 201, "POST", "/worker/shared", `{"ttl_ms":3600000}`)
	got := s.ids(t, "/id/snowflake/shared?n=3")
	expect.Equal(t, "GET /id/snowflake/shared?n=3: number of ids", len(numbers(t, got)), 3)
	expect.Equal(t, "GET /id/snowflake/shared?n=3", got, api.Snowflakes{Pool: "shared", WorkerID: 1, IDs: got.IDs})
	expect.Equal(t, "GET /id/snowflake/a%3Ab: pool", s.ids(t, "/id/snowflake/a%3Ab").Pool, "a:b")
	must[api.WorkerPool](t, s, 201, "PUT", "/worker/browsers", `{"layout":"41/5/7"}`)
	for _, text := range s.ids(t, "/id/snowflake/browsers?n=300").IDs {
		if id, err := snowflake.Parse(text); err != nil || id >= 1<<53 {
			t.Errorf("GET /id/snowflake/browsers?n=300: got id %s, want less than 2^53, so that JavaScript does not round it", text)
		}
	}
}

func (s *service) idFormats(t *testing.T) {
	layout := snowflake.MustLayout(snowflake.DefaultLayout)
	last := snowflake.ID(0)
	for _, row := range []struct {
		query string
		parse func(string) (snowflake.ID, error)
	}{
		{"format=decimal", snowflake.Parse},
		{"format=padded", func(text string) (snowflake.ID, error) { return snowflake.ParsePadded(text, 19) }},
		{"format=padded&width=25", func(text string) (snowflake.ID, error) { return snowflake.ParsePadded(text, 25) }},
		{"format=padded&width=64", func(text string) (snowflake.ID, error) { return snowflake.ParsePadded(text, 64) }},
		{"format=base36", snowflake.ParseBase36},
		{"format=base62", snowflake.ParseBase62},
		{"format=base32", snowflake.ParseBase32},
		{"format=timed", func(text string) (snowflake.ID, error) {
			return snowflake.ParseTimed(text, layout, snowflake.DefaultEpoch)
		}},
	} {
		for _, one := range []bool{true, false} {
			query := row.query
			if !one {
				query += "&n=700"
			}
			got := s.ids(t, "/id/snowflake?"+query)
			for _, text := range got.IDs {
				id, err := row.parse(text)
				if err != nil || id <= last {
					t.Fatalf("GET /id/snowflake?%s: %q is read as %d, %v; want more than %d, which came before", query, text, id, err, last)
				}
				last = id
			}
			want := ""
			if one {
				want = got.IDs[0]
			}
			expect.Equal(t, "GET /id/snowflake?"+query+": id", got.ID, want)
		}
	}
	for _, width := range []string{"1", "17"} { // an id has 18 digits from 2023 until 2057
		wantField(t, s.do(t, "GET", "/id/snowflake?format=padded&width="+width, ""), api.InvalidRequest, "width", "18 digits")
	}
}

func (s *service) idsAsText(t *testing.T) {
	for _, row := range []struct {
		query, accept string
		lines         int
		text          bool
	}{
		{"", "text/plain", 1, true},
		{"?n=1", "text/plain;q=0.9", 1, true},
		{"?n=1000", "text/plain, */*", 1000, true},
		{"?n=3&format=base62", "text/plain", 3, true},
		{"?n=3", "text/plain, application/json", 0, false},
		{"?n=3", "*/*", 0, false},
	} {
		a := s.do(t, "GET", "/id/snowflake"+row.query, "", "Accept: "+row.accept)
		a.wantStatus(t, 200)
		a.wantHeader(t, "Cache-Control", "no-store")
		media, _, _ := strings.Cut(a.header.Get("Content-Type"), ";")
		expect.Equal(t, a.asked+": media type is text/plain", media == "text/plain", row.text)
		if !row.text {
			decode[api.Snowflakes](t, a, 200)
			continue
		}
		lines := strings.Split(string(a.body), "\n")
		if len(lines) != row.lines+1 || lines[row.lines] != "" || !slices.IsSortedFunc(lines[:row.lines], strings.Compare) {
			t.Errorf("%v; want %d lines that rise", a, row.lines)
		}
	}
}

func (s *service) idsExhausted(t *testing.T) {
	must[api.WorkerPool](t, s, 201, "PUT", "/worker/taken", `{"layout":"41/1/12","ttl_ms":3600000}`)
	for range 2 {
		must[api.WorkerLease](t, s, 201, "POST", "/worker/taken", "")
	}
	for range 2 {
		a := s.do(t, "GET", "/id/snowflake/taken", "", "Accept: text/plain")
		checkProblem(t, a, api.PoolExhausted)
		a.wantRetryAfter(t, 1, 3600)
	}
}

func (s *service) idsDecoded(t *testing.T) {
	must[api.WorkerPool](t, s, 201, "PUT", "/worker/decoded", `{"layout":"41/5/5/12","epoch":"2024-01-01T00:00:00Z","datacenter":3}`)
	for _, format := range snowflake.Formats() {
		got := s.ids(t, "/id/snowflake/decoded?format="+string(format))
		path := "/id/decode/" + got.ID + "?pool=decoded&datacenter=3&format=" + string(format)
		parts := must[api.DecodedID](t, s, 200, "GET", path, "")
		wantAroundNow(t, "GET "+path+": time", parts.Time.Time)
		expect.Equal(t, "GET "+path, parts, api.DecodedID{
			ID: parts.ID, Time: parts.Time, WorkerID: got.WorkerID, Datacenter: 3, Sequence: parts.Sequence, Layout: "41/5/5/12",
			Epoch: api.At(time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)),
		})
	}
}

// Ids of rare requests fall on all shards alike, and with spread=false on one.
func TestRareIDsAreSpreadOverShards(t *testing.T) {
	t.Parallel()
	s := serve(t, server.Config{Store: storetest.Open(t, redisstore.Config{}), IDPool: "main"})
	const n, shards = 400, 8
	byShard := func(path string) (counts [shards]int) {
		before := snowflake.ID(0)
		for range n {
			time.Sleep(2 * time.Millisecond) // so that each has a unit of its own
			id := numbers(t, s.ids(t, path))[0]
			if id <= before {
				t.Errorf("id %d after %d, want ids to rise", id, before)
			}
			counts[id%shards]++
			before = id
		}
		return counts
	}
	// six standard deviations
	most := n/shards + int(6*math.Sqrt(n*(1./shards)*(1-1./shards)))
	for shard, count := range byShard("/id/snowflake") {
		if count > most {
			t.Errorf("ids of shard %d of %d: got %d of %d, want at most %d", shard, shards, count, n, most)
		}
	}
	if counts := byShard("/id/snowflake/main?spread=false"); counts[0] < n*9/10 {
		t.Errorf("ids by shard with spread=false: got %v, want nearly all on the first", counts)
	}
	wantField(t, s.do(t, "GET", "/id/snowflake?spread=yes", ""), api.InvalidRequest, "spread", "true or false")
}

func TestServerWithoutADefaultPoolSaysSo(t *testing.T) {
	s := onEmbedded(t)
	wantField(t, s.do(t, "GET", "/id/snowflake", ""), api.NotFound, "pool", "/id/snowflake/{pool}")
	s.ids(t, "/id/snowflake/p")
	if a := s.do(t, "GET", "/readyz", ""); strings.Count(string(a.body), `"pool"`) != 1 {
		t.Errorf("%v; want one pool", a)
	}
}

func TestMorePoolsThanThisServerStampsForAreRefused(t *testing.T) {
	s := serve(t, server.Config{Store: storetest.Open(t, redisstore.Config{}), IDPool: "main", IDPools: 2})
	s.ids(t, "/id/snowflake/second")
	a := s.do(t, "GET", "/id/snowflake/third", "")
	wantDetail(t, a, api.PoolExhausted, "2 pools at most")
	a.wantRetryAfter(t, 1, 60) // of a minute, since the second pool has just been used
	checkProblem(t, s.do(t, "GET", "/worker/third", ""), api.NotFound)
	s.ids(t, "/id/snowflake")
}

func TestIDsOfAPoolInQuarantineAreRefusedWithTheWaitAndTheServerIsReady(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	s := serve(t, server.Config{Store: storetest.Open(t, redisstore.Config{URL: redis.URL()}), IDPool: "main", Workers: workerlease.Config{NewPools: workerlease.NewPoolsWait}})
	for range 3 {
		a := s.do(t, "GET", "/id/snowflake", "")
		checkProblem(t, a, api.PoolQuarantined)
		a.wantRetryAfter(t, 1, 31)
	}
	ready := must[api.Readiness](t, s, 200, "GET", "/readyz", "")
	expect.Equal(t, "GET /readyz: ready", ready.Ready, true)
	expect.MustEqual(t, "GET /readyz: number of workers", len(ready.Workers), 1)
	expect.Contains(t, "GET /readyz: the worker's reason", ready.Workers[0].Reason, "the pool is new to this Redis")
	expect.Equal(t, "GET /readyz: worker", ready.Workers[0], api.StampingWorker{Pool: "main", State: "waiting", Configured: true, Reason: ready.Workers[0].Reason})
	must[api.WorkerPool](t, s, 201, "PUT", "/worker/main", "") // an operator knows that it is new
	s.ids(t, "/id/snowflake")                                  // it grants at once, as was said
	ready = must[api.Readiness](t, s, 200, "GET", "/readyz", "")
	w, id := ready.Workers[0], 0
	expect.Equal(t, "GET /readyz: worker once its pool is declared", w, api.StampingWorker{Pool: "main", State: "held", Configured: true, WorkerID: &id, NotAfter: w.NotAfter})
	expect.Equal(t, "GET /readyz: the worker's not_after is told", w.NotAfter.IsZero(), false)
	expect.Contains(t, "GET /readyz", string(s.do(t, "GET", "/readyz", "").body), `"worker_id":0`)
}

func TestIDsWithTheStoreAwayAreStampedAsLongAsTheLeaseLasts(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	store := storetest.Open(t, redisstore.Config{URL: redis.URL(), Timeout: storePatience})
	shape := workerlease.Shape{Layout: snowflake.DefaultLayout, Epoch: snowflake.DefaultEpoch}
	if err := workerlease.New(store, workerlease.Config{LongestTTL: time.Hour}).Create(t.Context(), "main", shape, time.Hour); err != nil {
		t.Fatalf("declaring pool main: %v", err)
	}
	s := serve(t, server.Config{Store: store, IDPool: "main"})
	must[api.WorkerPool](t, s, 201, "PUT", "/worker/short", `{"ttl_ms":3000}`)
	s.ids(t, "/id/snowflake")
	s.ids(t, "/id/snowflake/short")
	redis.Kill()
	s.ids(t, "/id/snowflake?n=100") // for an hour
	a := s.do(t, "GET", "/id/snowflake/another", "")
	if problem := checkProblem(t, a, api.StoreUnavailable); !strings.HasPrefix(problem.Detail, "No id was stamped: ") {
		t.Errorf("%s: detail: got %q, want it to begin with %q", a.asked, problem.Detail, "No id was stamped: ")
	}
	expect.Equal(t, a.asked+": Retry-After is told", a.header.Get("Retry-After") != "", true)
	if strings.Contains(string(a.body), "127.0.0.1") {
		t.Errorf("%v; want nothing of the store's address", a)
	}
	expect.Eventually(t, "the short lease ends", func() bool { a = s.do(t, "GET", "/id/snowflake/short", ""); return a.status != 200 })
	checkProblem(t, a, api.StoreUnavailable)
	s.wantNotReady(t)
	ready := must[api.Readiness](t, s, 503, "GET", "/readyz", "")
	expect.Equal(t, "GET /readyz: ready", ready.Ready, false)
	states := map[string]string{}
	for _, worker := range ready.Workers {
		states[worker.Pool] = worker.State
	}
	expect.Equal(t, "GET /readyz: states of the workers", states, map[string]string{"another": "waiting", "main": "held", "short": "waiting"})
	redis.Restart()
	expect.Eventually(t, "ids are stamped again", func() bool { return s.do(t, "GET", "/id/snowflake/short", "").status == 200 })
	s.ids(t, "/id/snowflake")
}

func TestMoreIDsThanALayoutHasInTheTimeOfARequestAreRefusedWithNoneStamped(t *testing.T) {
	t.Parallel()
	store := storetest.Open(t, redisstore.Config{})
	patient := serve(t, server.Config{Store: store})
	must[api.WorkerPool](t, patient, 201, "PUT", "/worker/slow", `{"layout":"32/10/0@s"}`)
	s := serve(t, server.Config{Store: store, RequestTimeout: time.Second})
	expect.Eventually(t, "a worker id is leased", func() bool { return s.do(t, "GET", "/id/snowflake/slow", "").status == 200 })
	wantDetail(t, s.do(t, "GET", "/id/snowflake/slow?n=100", ""), api.StoreUnavailable, "32/10/0@s has 1 in 1s")
}
