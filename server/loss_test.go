package server_test

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/counter"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/server"
)

// What is refused after a loss says what happened, what is safe to assume, the command that goes on
// with this name, and the setting that avoids it, in this order, and nothing twice. The log names
// the counter, unless it is to hold no names.
func TestRefusalsAfterALossSayWhatHappenedAndWhatToDo(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "everysec")
	store := storetest.Open(t, redisstore.Config{URL: redis.URL(), Timeout: storePatience})
	const moving, strict = counter.AfterLossMovePast, counter.AfterLossRefuse
	services := map[counter.AfterLoss]*service{}
	start := func() {
		for _, kind := range []counter.AfterLoss{moving, strict} {
			services[kind] = serve(t, server.Config{Store: store, OpaqueKeys: opaqueKeys, SegmentStep: 10,
				Counters: counter.Config{AfterLoss: kind}})
		}
	}
	start()
	today := time.Now().UTC().Format("20060102")
	at := "&at=" + time.Now().UTC().Format(time.RFC3339)
	rows := []struct {
		service       counter.AfterLoss
		method, path  string
		code          api.Code
		known, goesOn string
	}{
		{moving, "POST", "/incr/short?template=INV-%7Bn:6%7D", api.CounterBehind, "1 is the last value that is known",
			"coatcheck counter set short 1 "},
		{moving, "POST", "/incr/daily?template=ORD-%7ByyyyMMdd%7D-%7Bn:6%7D" + at, api.CounterBehind, "no value up to 999999",
			"coatcheck counter set daily:" + today + " 1 "},
		{moving, "GET", "/id/segment/six?format=opaque&width=6", api.CounterBehind, "no value up to", "coatcheck segment set six "},
		{strict, "POST", "/incr/strict", api.CounterBehind, "1 is the last value that is known", "coatcheck counter set strict 1 "},
		{moving, "POST", "/worker/pool", api.PoolQuarantined, "may be in use for", "none is granted until then"},
	}
	must[api.WorkerPool](t, services[moving], 201, "PUT", "/worker/pool", `{"ttl_ms":3600000}`)
	for _, row := range rows {
		if a := services[row.service].do(t, row.method, row.path, ""); a.status >= 300 {
			t.Fatalf("%s before the restart: got %d %s", a.asked, a.status, a.body)
		}
	}
	redis.Stop() // in order, so that the file is whole
	redis.Restart()
	services[moving].wantReady(t)
	start() // processes that hold no segment of before
	for _, row := range rows {
		a := services[row.service].do(t, row.method, row.path, "")
		detail := checkProblem(t, a, row.code).Detail
		rest, found := strings.CutPrefix(detail, "Redis was restarted, ")
		for _, part := range []string{row.known, row.goesOn, "appendfsync always in Redis"} {
			if found {
				_, rest, found = strings.Cut(rest, part)
			}
		}
		if !found {
			t.Errorf("%s after the restart: got detail %q, want one that begins with \"Redis was restarted\", then says %q, %q, and \"appendfsync always in Redis\"",
				a.asked, detail, row.known, row.goesOn)
		}
	}
	nameless := serve(t, server.Config{Store: store, AuditLog: "none"})
	checkProblem(t, nameless.do(t, "POST", rows[0].path, ""), api.CounterBehind)
	for service, names := range map[*service][]string{services[moving]: {"short", "six"}, services[strict]: {"strict"}, nameless: nil} {
		var got []string
		for _, line := range refusedCounter.FindAllStringSubmatch(service.log.String(), -1) {
			got = append(got, line[1])
		}
		expect.Equal(t, "counters that the log says are refused", got, names)
		expect.Equal(t, "lines of refused counters", strings.Count(service.log.String(), "a counter is refused"), max(len(names), 1))
	}
}

var refusedCounter = regexp.MustCompile(`(?m)a counter is refused .* key=(\S+) last=\d+ limit=\d+ why="Redis was restarted`)

// State that was copied from another server, into a cluster or without its markers, was written by
// processes whose history is not there: it is a loss, of each domain, for processes that are new.
func TestStateThatWasCopiedWithoutItsMarkersIsALoss(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(t *testing.T) (url string, at func(key string) *redistest.Server){
		"to a server": func(t *testing.T) (string, func(string) *redistest.Server) {
			redis := redistest.Start(t)
			return redis.URL(), func(string) *redistest.Server { return redis }
		},
		"to a cluster": func(t *testing.T) (string, func(string) *redistest.Server) {
			cluster := redistest.StartCluster(t, 3, 0)
			return cluster.URL(), cluster.MasterOf
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			open := func(url string) *service {
				return serve(t, server.Config{Store: storetest.Open(t, redisstore.Config{URL: url, Timeout: storePatience}), SegmentStep: 10})
			}
			from := redistest.Start(t)
			before := open(from.URL())
			must[api.WorkerPool](t, before, 201, "PUT", "/worker/orders", `{"ttl_ms":3600000}`)
			must[api.WorkerLease](t, before, 201, "POST", "/worker/orders", "")
			must[api.Incremented](t, before, 200, "POST", "/incr/orders?by=5", "")
			before.segmentIDs(t, "orders?n=5")
			url, at := start(t)
			for _, key := range from.Client().Keys(t.Context(), "*").Val() {
				if strings.Contains(key, "{marker}") {
					continue
				}
				value, err := from.Client().Dump(t.Context(), key).Result()
				expect.MustEqual(t, "error of DUMP "+key, err, nil)
				expect.MustEqual(t, "error of RESTORE "+key, at(key).Client().Restore(t.Context(), key, 0, value).Err(), nil)
			}
			after := open(url)
			if got := must[api.Incremented](t, after, 200, "POST", "/incr/orders", "").Value; got <= counter.DefaultMargin {
				t.Errorf("POST /incr/orders on the copy: got %d, want a value past the margin of %d", got, int64(counter.DefaultMargin))
			}
			checkProblem(t, after.do(t, "POST", "/worker/orders", ""), api.PoolQuarantined)
			if id := after.segmentIDs(t, "orders").ID; len(id) < len("640") {
				t.Errorf("GET /id/segment/orders on the copy: got %s, want an id past the margin", id)
			}
		})
	}
}
