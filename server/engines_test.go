package server_test

import (
	"testing"

	"github.com/coatcheck/coatcheck/internal/expect"
	"github.com/coatcheck/coatcheck/internal/redistest"
	"github.com/coatcheck/coatcheck/internal/storetest"
	"github.com/coatcheck/coatcheck/internal/testing/engines"
	"github.com/coatcheck/coatcheck/internal/wire"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/server"
)

// onEngine is a service on a server that looks like another engine.
func onEngine(t *testing.T, engine engines.Engine, config redisstore.Config) (*service, *engines.Proxy) {
	t.Helper()
	proxy := engines.Start(t, redistest.Start(t).Addr(), engine)
	config.URL, config.Timeout = proxy.URL(), storePatience
	return serve(t, server.Config{Store: storetest.Open(t, config), Dev: true, IDPool: "default"}), proxy
}

// What an engine lacks that no decision needs changes no answer.
func TestEnginesThatLackWhatNoDecisionNeeds(t *testing.T) {
	t.Parallel()
	for name, engine := range map[string]engines.Engine{
		"CONFIG":                              {Unknown: []string{"CONFIG"}},
		"WAIT, without an acknowledgement":    {Unknown: []string{"WAIT"}},
		"PUBLISH in scripts":                  {NotInScripts: []string{"PUBLISH"}},
		"PUBLISH and SUBSCRIBE":               {Unknown: []string{"PUBLISH", "SUBSCRIBE"}},
		"all lines of INFO but master_replid": {Info: map[string]string{"run_id": "", "role": "", "aof_enabled": "", "redis_version": "", "master_replid2": ""}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, _ := onEngine(t, engine, redisstore.Config{})
			useTokens(t, s)
			useNumbers(t, s)
			useWorkers(t, s)
			useLocks(t, s)
			must[wire.Readiness](t, s, 200, "GET", "/readyz", "")
		})
	}
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
	s, _ := onEngine(t, engines.Engine{NoLua: true}, redisstore.Config{})
	for _, c := range append([]call{
		{method: "POST", path: "/token", body: `{}`},
		{method: "POST", path: "/payments", body: `{"amount":5,"currency":"EUR","to":"acct_1"}`, header: []string{"Idempotency-Key: good"}},
		{method: "POST", path: "/lock/alone", body: forAnHourHeld},
		{method: "GET", path: "/lock"},
	}, numbersAndWorkers...) {
		problem := decode[wire.Problem](t, s.do(t, c.method, c.path, c.body, c.header...), 503)
		expect.Equal(t, "code of "+c.String(), string(problem.Code), "store-unavailable")
	}
	s.wantNotReady(t)
}

// What reads a counter is refused, so nothing is known of its value.
func TestEngineWithoutGetDoesNotSayThatAValueIsNoInteger(t *testing.T) {
	t.Parallel()
	s, _ := onEngine(t, engines.Engine{Unknown: []string{"GET"}}, redisstore.Config{})
	for _, c := range numbersAndWorkers[:3] {
		problem := decode[wire.Problem](t, s.do(t, c.method, c.path, c.body, c.header...), 503)
		expect.Equal(t, "code of "+c.String(), string(problem.Code), "store-unavailable")
	}
}

// A service that is ready can serve: no script runs without the time.
func TestEngineWithoutTimeIsNotReady(t *testing.T) {
	t.Parallel()
	s, _ := onEngine(t, engines.Engine{Unknown: []string{"TIME"}}, redisstore.Config{})
	s.wantNotReady(t)
}
