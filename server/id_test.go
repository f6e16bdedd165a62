package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/redistest"
	"github.com/coatcheck/coatcheck/internal/storetest"
	"github.com/coatcheck/coatcheck/internal/wire"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/server"
	"github.com/coatcheck/coatcheck/snowflake"
	"github.com/coatcheck/coatcheck/workerlease"
)

func TestSnowflakeIDsOverHTTP(t *testing.T) {
	storetest.Each(t, func(t *testing.T, store *redisstore.Store) {
		s := serve(t, server.Config{Store: store, IDPool: "main", Identity: "host-1"})
		t.Run("one, and as many as were asked for", s.idsOfTheDefaultPool)
		t.Run("of the pool that the path names", s.idsOfAPool)
		t.Run("in every format", s.idFormats)
		t.Run("as bare digits", s.idsAsText)
		t.Run("many at once are all different", s.idsAtOnce)
		t.Run("of an exhausted pool are refused with its wait", s.idsExhausted)
		t.Run("are decoded as they were stamped", s.idsDecoded)
	})
}

func (s *service) ids(t testing.TB, path string) wire.Snowflakes {
	t.Helper()
	return must[wire.Snowflakes](t, s, 200, "GET", path, "")
}

// numbers reads ids in decimal, and checks that they rise and are of one worker id and of now.
func numbers(t testing.TB, got wire.Snowflakes) (ids []snowflake.ID) {
	t.Helper()
	layout := snowflake.MustLayout(snowflake.DefaultLayout)
	for i, text := range got.IDs {
		id, err := snowflake.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		parts := layout.Decode(id, snowflake.DefaultEpoch)
		if apart := time.Since(parts.Time).Abs(); parts.Worker != got.WorkerID || apart > time.Minute || i > 0 && id <= ids[i-1] {
			t.Fatalf("%d behind %v: %+v, worker id %d", id, ids, parts, got.WorkerID)
		}
		ids = append(ids, id)
	}
	return ids
}

func (s *service) idsOfTheDefaultPool(t *testing.T) {
	a := s.do(t, "GET", "/id/snowflake", "")
	one := decode[wire.Snowflakes](t, a, 200)
	if one.Pool != "main" || one.WorkerID != 0 || len(one.IDs) != 1 || one.ID != one.IDs[0] || a.header.Get("Cache-Control") != "no-store" {
		t.Errorf("%+v %v", one, a.header)
	}
	if want := fmt.Sprintf(`{"pool":"main","worker_id":0,"id":%q,"ids":[%q]}`+"\n", one.ID, one.ID); string(a.body) != want || a.header.Get("Content-Type") != "application/json" {
		t.Errorf("%q %v, want %q", a.body, a.header, want)
	}
	last := numbers(t, one)[0]
	for _, n := range []int{1, 2, 255, 256, 257, 5000, 10_000} {
		got := s.ids(t, "/id/snowflake?n="+strconv.Itoa(n))
		ids := numbers(t, got)
		if len(ids) != n || got.ID != "" || ids[0] <= last {
			t.Errorf("n=%d: %d ids from %d behind %d, id %q", n, len(ids), ids[0], last, got.ID)
		}
		last = ids[n-1]
	}
	if slot := must[wire.WorkerRing](t, s, 200, "GET", "/worker/main?n=1", "").Slots[0]; slot.State != "held" || slot.Holder != "host-1" {
		t.Errorf("%+v", slot)
	}
}

func (s *service) idsOfAPool(t *testing.T) {
	must[wire.WorkerLease](t, s, 201, "POST", "/worker/shared", "") // another has worker id 0
	got := s.ids(t, "/id/snowflake/shared?n=3")
	if ids := numbers(t, got); got.Pool != "shared" || got.WorkerID != 1 || len(ids) != 3 {
		t.Errorf("%+v", got)
	}
	if got := s.ids(t, "/id/snowflake/a%3Ab"); got.Pool != "a:b" {
		t.Errorf("%+v", got)
	}
	must[wire.WorkerPool](t, s, 201, "PUT", "/worker/browsers", `{"layout":"41/5/7"}`)
	for _, text := range s.ids(t, "/id/snowflake/browsers?n=300").IDs {
		if id, err := snowflake.Parse(text); err != nil || id >= 1<<53 {
			t.Errorf("%s: JavaScript would round it", text)
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
					t.Fatalf("%s: %q behind %d: %v", query, text, last, err)
				}
				last = id
			}
			if one != (got.ID == got.IDs[0]) {
				t.Errorf("%s: id %q", query, got.ID)
			}
		}
	}
	for _, width := range []string{"1", "17"} { // an id has 18 digits from 2023 until 2057
		problem := checkProblem(t, s.do(t, "GET", "/id/snowflake?format=padded&width="+width, ""), wire.InvalidRequest)
		if problem.Field != "width" || !strings.Contains(problem.Detail, "18 digits") {
			t.Errorf("%+v", problem)
		}
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
		if a.status != 200 || a.header.Get("Cache-Control") != "no-store" || strings.HasPrefix(a.header.Get("Content-Type"), "text/plain") != row.text {
			t.Errorf("%+v: %d %v", row, a.status, a.header)
		}
		if !row.text {
			decode[wire.Snowflakes](t, a, 200)
			continue
		}
		lines := strings.Split(string(a.body), "\n")
		if len(lines) != row.lines+1 || lines[row.lines] != "" || !slices.IsSortedFunc(lines[:row.lines], strings.Compare) {
			t.Errorf("%+v: %d lines: %.200s", row, len(lines), a.body)
		}
	}
}

func (s *service) idsAtOnce(t *testing.T) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	seen := map[string]bool{}
	for i := range 12 {
		wg.Go(func() {
			a, err := s.send(context.WithoutCancel(t.Context()), call{method: "GET", path: fmt.Sprintf("/id/snowflake/at-once?n=%d", 1+i*97)})
			var got wire.Snowflakes
			if err != nil || a.status != 200 || strictly(a.body, &got) != nil {
				t.Errorf("%v %d %.200s", err, a.status, a.body)
			}
			mu.Lock()
			defer mu.Unlock()
			for _, id := range got.IDs {
				if seen[id] {
					t.Errorf("%s twice", id)
				}
				seen[id] = true
			}
		})
	}
	wg.Wait()
	if ring := must[wire.WorkerRing](t, s, 200, "GET", "/worker/at-once?n=1", ""); ring.Used != 1 {
		t.Errorf("one server leased %d worker ids", ring.Used)
	}
}

func (s *service) idsExhausted(t *testing.T) {
	must[wire.WorkerPool](t, s, 201, "PUT", "/worker/taken", `{"layout":"41/1/12","ttl_ms":60000}`)
	for range 2 {
		must[wire.WorkerLease](t, s, 201, "POST", "/worker/taken", "")
	}
	for range 2 {
		a := s.do(t, "GET", "/id/snowflake/taken", "", "Accept: text/plain")
		checkProblem(t, a, wire.PoolExhausted)
		if wait, err := strconv.Atoi(a.header.Get("Retry-After")); err != nil || wait < 1 || wait > 60 {
			t.Errorf("Retry-After %q", a.header.Get("Retry-After"))
		}
	}
}

func (s *service) idsDecoded(t *testing.T) {
	must[wire.WorkerPool](t, s, 201, "PUT", "/worker/decoded", `{"layout":"41/5/5/12","epoch":"2024-01-01T00:00:00Z","datacenter":3}`)
	for _, format := range snowflake.Formats() {
		got := s.ids(t, "/id/snowflake/decoded?format="+string(format))
		parts := must[wire.DecodedID](t, s, 200, "GET", "/id/decode/"+got.ID+"?pool=decoded&datacenter=3&format="+string(format), "")
		if time.Since(parts.Time).Abs() > time.Minute || parts.WorkerID != got.WorkerID || parts.Datacenter != 3 || parts.Layout != "41/5/5/12" || parts.Epoch.Year() != 2024 {
			t.Errorf("%+v of %+v", parts, got)
		}
	}
}

func TestServerWithoutADefaultPoolSaysSo(t *testing.T) {
	s := onEmbedded(t)
	if problem := checkProblem(t, s.do(t, "GET", "/id/snowflake", ""), wire.NotFound); problem.Field != "pool" || !strings.Contains(problem.Detail, "/id/snowflake/{pool}") {
		t.Errorf("%+v", problem)
	}
	s.ids(t, "/id/snowflake/p")
	if a := s.do(t, "GET", "/readyz", ""); strings.Count(string(a.body), `"pool"`) != 1 {
		t.Errorf("%s", a.body)
	}
}

func TestMorePoolsThanThisServerStampsForAreRefused(t *testing.T) {
	s := serve(t, server.Config{Store: storetest.Open(t, redisstore.Config{}), IDPool: "main", IDPools: 2})
	s.ids(t, "/id/snowflake/second")
	a := s.do(t, "GET", "/id/snowflake/third", "")
	if problem := checkProblem(t, a, wire.PoolExhausted); !strings.Contains(problem.Detail, "2 pools at most") {
		t.Errorf("%+v", problem)
	}
	if wait, err := strconv.Atoi(a.header.Get("Retry-After")); err != nil || wait < 500 || wait > 600 {
		t.Errorf("Retry-After %q", a.header.Get("Retry-After"))
	}
	checkProblem(t, s.do(t, "GET", "/worker/third", ""), wire.NotFound)
	s.ids(t, "/id/snowflake")
}

func TestIDsOfAPoolInQuarantineAreRefusedWithTheWaitAndTheServerIsReady(t *testing.T) {
	redis := redistest.Start(t)
	s := serve(t, server.Config{Store: storetest.Open(t, redisstore.Config{URL: redis.URL()}), IDPool: "main", Workers: workerlease.Config{NewPools: workerlease.Wait}})
	for range 3 {
		a := s.do(t, "GET", "/id/snowflake", "")
		checkProblem(t, a, wire.PoolQuarantined)
		if wait, err := strconv.Atoi(a.header.Get("Retry-After")); err != nil || wait < 1 || wait > 31 {
			t.Errorf("Retry-After %q", a.header.Get("Retry-After"))
		}
	}
	ready := must[wire.Readiness](t, s, 200, "GET", "/readyz", "")
	if !ready.Ready || len(ready.Workers) != 1 {
		t.Fatalf("%+v", ready)
	}
	if w := ready.Workers[0]; w.Pool != "main" || w.State != "waiting" || w.WorkerID != nil || !w.NotAfter.IsZero() || !strings.Contains(w.Reason, "may have been lost") {
		t.Errorf("%+v", w)
	}
	must[wire.WorkerPool](t, s, 201, "PUT", "/worker/main", "") // an operator knows that it is new
	eventually(t, "ids are stamped", func() bool { return s.do(t, "GET", "/id/snowflake", "").status == 200 })
	ready = must[wire.Readiness](t, s, 200, "GET", "/readyz", "")
	if w := ready.Workers[0]; w.State != "held" || w.WorkerID == nil || *w.WorkerID != 0 || !w.NotAfter.After(time.Now()) || w.Reason != "" {
		t.Errorf("%+v", w)
	}
	if body := s.do(t, "GET", "/readyz", "").body; !json.Valid(body) || !strings.Contains(string(body), `"worker_id":0`) {
		t.Errorf("%s", body)
	}
}

func TestIDsWithTheStoreAwayAreStampedAsLongAsTheLeaseLasts(t *testing.T) {
	redis := redistest.Start(t)
	s := serve(t, server.Config{Store: storetest.Open(t, redisstore.Config{URL: redis.URL(), Timeout: time.Second}), IDPool: "main"})
	must[wire.WorkerPool](t, s, 201, "PUT", "/worker/short", `{"ttl_ms":3000}`)
	s.ids(t, "/id/snowflake")
	s.ids(t, "/id/snowflake/short")
	redis.Kill()
	s.ids(t, "/id/snowflake?n=100") // for half a minute
	a := s.do(t, "GET", "/id/snowflake/another", "")
	if problem := checkProblem(t, a, wire.StoreUnavailable); a.header.Get("Retry-After") == "" || !strings.HasPrefix(problem.Detail, "No id was stamped: ") || strings.Contains(problem.Detail, "127.0.0.1") {
		t.Errorf("%v %+v", a.header, problem)
	}
	eventually(t, "the short lease ends", func() bool { a = s.do(t, "GET", "/id/snowflake/short", ""); return a.status != 200 })
	checkProblem(t, a, wire.StoreUnavailable)
	if ready := must[wire.Readiness](t, s, 503, "GET", "/readyz", ""); ready.Ready || len(ready.Workers) != 3 || ready.Workers[1].State != "held" || ready.Workers[2].State != "waiting" {
		t.Errorf("%+v", ready)
	}
	redis.Restart()
	eventually(t, "ids are stamped again", func() bool { return s.do(t, "GET", "/id/snowflake/short", "").status == 200 })
	s.ids(t, "/id/snowflake")
}

func TestMoreIDsThanALayoutHasInTheTimeOfARequestAreRefusedWithNoneStamped(t *testing.T) {
	s := serve(t, server.Config{Store: storetest.Open(t, redisstore.Config{}), RequestTimeout: time.Second})
	must[wire.WorkerPool](t, s, 201, "PUT", "/worker/slow", `{"layout":"32/10/0@s"}`)
	a := s.do(t, "GET", "/id/snowflake/slow?n=100", "")
	if problem := checkProblem(t, a, wire.StoreUnavailable); !strings.Contains(problem.Detail, "32/10/0@s has 1 in 1s") {
		t.Errorf("%+v", problem)
	}
}
