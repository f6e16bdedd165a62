package main

import (
	"context"
	"regexp"
	"testing"

	"github.com/coatcheck/coatcheck/internal/expect"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/workerlease"
)

// The bare commands of the page are those of the scripts: as many, of the same kinds.
func TestTheLeastScriptsSendWhatTheScriptsSend(t *testing.T) {
	server, err := startRedis(t.Context())
	expect.Error(t, "starting Redis", err, nil)
	defer server.end()
	store, err := redisstore.Open(t.Context(), server.url())
	expect.Error(t, "opening the store", err, nil)
	defer func() { expect.Error(t, "closing the store", store.Close(), nil) }()
	pools := workerlease.New(store, workerlease.Config{NewPools: workerlease.Trust})
	whole := &ring{redis: server, pools: pools, name: "whole", slots: 1024, leases: make([]workerlease.Lease, turnsOfSlots)}
	whole.calls = slotCalls{whole.acquire, whole.renew, whole.release}
	least := &ring{redis: server, pools: pools, name: "least", slots: 1024, calls: leastCalls(store, "least")}
	for _, ring := range []*ring{whole, least} {
		expect.Error(t, "filling "+ring.name, ring.fill(t.Context(), store), nil)
		_, err := ring.turn(t.Context()) // Redis knows the scripts
		expect.Error(t, "a turn of "+ring.name, err, nil)
	}
	for _, row := range []struct {
		name         string
		whole, least func(context.Context, int) error
	}{
		{"acquire", whole.acquire, least.calls.acquire},
		{"renew", whole.renew, least.calls.renew},
	} {
		want, got := commandsOf(t, server, row.whole), commandsOf(t, server, row.least)
		expect.Equal(t, "the commands of the least "+row.name, got, want)
	}
}

var callsOf = regexp.MustCompile(`^calls=(\d+)`)

// commandsOf is how often Redis ran each command for one call.
func commandsOf(t *testing.T, server *redisServer, call func(context.Context, int) error) map[string]string {
	t.Helper()
	expect.Error(t, "resetting statistics", server.ConfigResetStat(t.Context()).Err(), nil)
	expect.Error(t, "calling", call(t.Context(), 0), nil)
	stats, err := server.info(t.Context(), "commandstats")
	expect.Error(t, "reading statistics", err, nil)
	found := map[string]string{}
	for name, text := range stats {
		if calls := callsOf.FindStringSubmatch(text); calls != nil && name != "cmdstat_config|resetstat" {
			found[name[len("cmdstat_"):]] = calls[1]
		}
	}
	return found
}
