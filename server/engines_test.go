package server_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/redisprobe"
	"github.com/coatcheck/coatcheck/internal/testing/engines"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/logtest"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/server"
)

// onEngine is a service on a server that looks like another engine.
func onEngine(t *testing.T, engine engines.Engine) (*service, *engines.Proxy) {
	t.Helper()
	proxy := engines.Start(t, redistest.Start(t).Addr(), engine)
	config := redisstore.Config{URL: proxy.URL(), Timeout: storePatience}
	return serve(t, server.Config{Store: storetest.Open(t, config), Dev: true, IDPool: "default"}), proxy
}

// What an engine lacks that no decision needs changes no answer.
func TestEnginesThatLackWhatNoDecisionNeeds(t *testing.T) {
	t.Parallel()
	for name, engine := range map[string]engines.Engine{
		"CONFIG":                           {Unknown: []string{"CONFIG"}},
		"WAIT, without an acknowledgement": {Unknown: []string{"WAIT"}},
		"PUBLISH in scripts":               {NotInScripts: []string{"PUBLISH"}},
		"PUBLISH and SUBSCRIBE":            {Unknown: []string{"PUBLISH", "SUBSCRIBE"}},
		"all lines of INFO but master_replid": {Info: map[string]string{"run_id": "", "role": "", "aof_enabled": "", "redis_version": "",
			"master_replid2": ""}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, _ := onEngine(t, engine)
			useTokens(t, s)
			useNumbers(t, s)
			useWorkers(t, s)
			useLocks(t, s)
			must[api.Readiness](t, s, 200, "GET", "/readyz", "")
		})
	}
}

// What a user may not run is as what an engine lacks: waiters poll, and the log says so once.
func TestUserWithoutPublishAndSubscribePolls(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	log := &logtest.Text{}
	config := redisstore.Config{URL: userWithout(t, redis, "publish", "subscribe"), Timeout: storePatience}
	s := serve(t, server.Config{Store: storetest.Open(t, config), Dev: true, IDPool: "default", Logger: log.Logger()})
	useTokens(t, s)
	useNumbers(t, s)
	useWorkers(t, s)
	useLocks(t, s)
	useLocks(t, s)
	must[api.Readiness](t, s, 200, "GET", "/readyz", "")
	// of locks, and of answers
	if n := strings.Count(log.String(), "the subscription failed"); n > 2 {
		t.Errorf("the log says %d times that the subscription failed, want 2 at most:\n%s", n, log)
	}
}

// userWithout is the URL of a server with a user that lacks rights to some commands.
func userWithout(t *testing.T, redis *redistest.Server, commands ...string) (url string) {
	t.Helper()
	words := []any{"ACL", "SETUSER", "few", "reset", "on", ">word"}
	for _, right := range redisprobe.Rights(redisstore.ModeStandalone, "coatcheck:") {
		words = append(words, right)
	}
	for _, command := range commands {
		words = append(words, "-"+command)
	}
	expect.MustEqual(t, "error of ACL SETUSER", redis.Client().Do(t.Context(), words...).Err(), nil)
	return strings.Replace(redis.URL(), "://", "://few:word@", 1)
}

// numbersAndWorkers are calls that depend on the server's incarnation.
var numbersAndWorkers = []call{
	{method: "GET", path: "/incr/k"},
	{method: "POST", path: "/incr/once", header: []string{"Idempotency-Key: once"}},
	{method: "GET", path: "/incr/days?calendar=%7ByyyyMMdd%7D"},
	{method: "PUT", path: "/counter/k", body: `{"value":7}`},
	{method: "GET", path: "/id/segment/orders?n=3"},
	{method: "GET", path: "/id/snowflake"},
	{method: "POST", path: "/worker/orders", body: `{"identity":"orders-0","ttl_ms":3600000}`},
	{method: "PUT", path: "/worker/declared", body: `{}`},
}

// Nothing runs without Lua, and every call is told so: no outcome is unknown.
func TestEngineWithoutLuaRefusesEveryCall(t *testing.T) {
	t.Parallel()
	s, _ := onEngine(t, engines.Engine{NoLua: true})
	for _, c := range append([]call{
		{method: "POST", path: "/token", body: `{}`},
		{method: "POST", path: "/payments", body: `{"amount":5,"currency":"EUR","to":"acct_1"}`, header: []string{"Idempotency-Key: good"}},
		{method: "POST", path: "/lock/alone", body: forAnHourHeld},
		{method: "GET", path: "/lock"},
	}, numbersAndWorkers...) {
		problem := decode[api.Problem](t, s.do(t, c.method, c.path, c.body, c.header...), 503)
		expect.Equal(t, "code of "+c.String(), string(problem.Code), "store-unavailable")
	}
	s.wantNotReady(t)
}

// What reads a counter is refused, so nothing is known of its value.
func TestEngineWithoutGetDoesNotSayThatAValueIsNoInteger(t *testing.T) {
	t.Parallel()
	s, _ := onEngine(t, engines.Engine{Unknown: []string{"GET"}})
	for _, c := range numbersAndWorkers[:3] {
		problem := decode[api.Problem](t, s.do(t, c.method, c.path, c.body, c.header...), 503)
		expect.Equal(t, "code of "+c.String(), string(problem.Code), "store-unavailable")
	}
}

// A service that is ready can serve: no script runs without the time.
func TestEngineWithoutTimeIsNotReady(t *testing.T) {
	t.Parallel()
	s, _ := onEngine(t, engines.Engine{Unknown: []string{"TIME"}})
	s.wantNotReady(t)
}

// What shows a loss is missing: counters, segments and worker ids are refused, with the fact and
// the setting, and change nothing; tokens and locks work. Where every restart is trusted, all do.
func TestEnginesWithoutAnIncarnation(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		engine engines.Engine
		fact   string
	}{
		"no master_replid":       {engines.Engine{Info: map[string]string{"master_replid": "", "master_replid2": ""}}, "master_replid"},
		"master_replid of zeros": {engines.Engine{Info: map[string]string{"master_replid": engines.Zeros}}, "master_replid"},
		"INFO not in scripts":    {engines.Engine{NotInScripts: []string{"INFO"}}, "INFO"},
		"no INFO":                {engines.Engine{Unknown: []string{"INFO"}}, "INFO"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, proxy := onEngine(t, row.engine)
			useTokens(t, s)
			useLocks(t, s)
			for _, c := range numbersAndWorkers {
				a := s.do(t, c.method, c.path, c.body, c.header...)
				problem := decode[api.Problem](t, a, 503)
				expect.Equal(t, "code of "+c.String(), string(problem.Code), "store-unsuitable")
				expect.Equal(t, "retryable of "+c.String(), problem.Retryable, false)
				expect.Contains(t, "detail of "+c.String(), problem.Detail, row.fact, "--restarts trust")
			}
			must[api.Readiness](t, s, 200, "GET", "/readyz", "")

			trusting := serve(t, server.Config{Store: storetest.Open(t,
				redisstore.Config{URL: proxy.URL(), Timeout: storePatience, Prefix: "trusting:",
					Restarts: redisstore.RestartsTrust}), Dev: true, IDPool: "default"})
			useTokens(t, trusting)
			useNumbers(t, trusting)
			useWorkers(t, trusting)
			useLocks(t, trusting)
			must[api.Readiness](t, trusting, 200, "GET", "/readyz", "")
		})
	}
}

// A server with older data takes the place of another, and clients keep their connections to the
// proxy between: whatever was handed out is not handed out again.
func TestRollbackBehindAProxyHandsNothingOutTwice(t *testing.T) {
	t.Parallel()
	first := redistest.Start(t, "--enable-protected-configs", "yes")
	proxy := engines.Start(t, first.Addr(), engines.Engine{})
	open := func() *service {
		return serve(t, server.Config{Store: storetest.Open(t, redisstore.Config{URL: proxy.URL(), Timeout: storePatience}), IDPool: "default"})
	}
	one, two := open(), open()
	seen := map[string]bool{}
	take := func(s *service, when string) {
		t.Helper()
		for _, path := range []string{"/incr/orders", "/id/segment/orders", "/id/snowflake/orders"} {
			a := s.do(t, "GET", path, "", "Accept: text/plain")
			if a.status != 200 {
				continue // a refusal hands nothing out
			}
			id := path + " " + string(a.body)
			if seen[id] {
				t.Errorf("GET %s %s: got %s, which was handed out before", path, when, a.body)
			}
			seen[id] = true
		}
		a := s.do(t, "POST", "/worker/orders", `{"ttl_ms":3600000}`)
		if a.status == 201 {
			id := fmt.Sprint("worker id ", decode[api.WorkerLease](t, a, 201).WorkerID)
			if seen[id] {
				t.Errorf("POST /worker/orders %s: got %s, which is leased", when, id)
			}
			seen[id] = true
		}
	}
	for range 3 {
		take(one, "at first")
		take(two, "at first")
	}
	second := older(t, first)
	for range 3 {
		take(one, "after the copy was made")
		take(two, "after the copy was made")
	}
	proxy.Behind(second.Addr())
	for range 5 {
		take(one, "from the server with older data")
		take(two, "from the server with older data")
	}
}

// older is a server with the data that another one has now.
func older(t *testing.T, server *redistest.Server) *redistest.Server {
	t.Helper()
	client, dir := server.Client(), t.TempDir()
	expect.Error(t, "CONFIG SET dir", client.ConfigSet(t.Context(), "dir", dir).Err(), nil)
	expect.Error(t, "SAVE", client.Save(t.Context()).Err(), nil)
	return redistest.Start(t, "--dir", dir)
}
