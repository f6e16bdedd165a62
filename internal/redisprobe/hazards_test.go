package redisprobe_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/internal/redisprobe"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
)

// Each row is how a server was started, and what can be lost by it.
func TestHazardsTellWhatARedisCanLose(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		args []string
		want []string
	}{
		"nothing":          {[]string{"--appendonly", "yes"}, nil},
		"no disk":          {nil, []string{"keeps nothing on disk"}},
		"snapshots":        {[]string{"--save", "3600 1"}, []string{"from time to time"}},
		"eviction":         {[]string{"--appendonly", "yes", "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"}, []string{"evicts keys when its memory is full (allkeys-lru)"}},
		"no limit":         {[]string{"--appendonly", "yes", "--maxmemory-policy", "allkeys-lru"}, nil},
		"full, no evictor": {[]string{"--appendonly", "yes", "--maxmemory", "100mb"}, nil},
		"both":             {[]string{"--maxmemory", "100mb", "--maxmemory-policy", "volatile-ttl"}, []string{"evicts", "keeps nothing"}},
	} {
		t.Run(name, func(t *testing.T) {
			server := redistest.Start(t, row.args...)
			found, err := redisprobe.Hazards(t.Context(), open(t, server.URL()))
			expect.Error(t, "Hazards", err, nil)
			expect.MustEqual(t, fmt.Sprintf("number of hazards, which are %q", found), len(found), len(row.want))
			for i, want := range row.want {
				if !strings.Contains(found[i].String(), want) || found[i].Server != server.Addr() || found[i].Fix == "" {
					t.Errorf("%q, want %q", found[i], want)
				}
			}
		})
	}
}

func TestHazardsOfTrustedRestartsAreWritesThatAreNotOnDisk(t *testing.T) {
	t.Parallel()
	for rule, hazards := range map[string]int{"always": 0, "everysec": 1, "no": 1} {
		server := redistest.Start(t, "--appendonly", "yes", "--appendfsync", rule)
		store := storetest.Open(t, redisstore.Config{URL: server.URL(), Restarts: redisstore.RestartsTrust})
		found, err := redisprobe.Hazards(t.Context(), store)
		expect.Error(t, "Hazards", err, nil)
		expect.MustEqual(t, fmt.Sprintf("number of hazards with appendfsync %s, which are %q", rule, found), len(found), hazards)
		if hazards > 0 && (!strings.Contains(found[0].Risk, "restarts are trusted") || found[0].Fix != "appendfsync always") {
			t.Errorf("with appendfsync %s: %+v, want the risk of trusted restarts and what ends it", rule, found[0])
		}
	}
}

func TestHazardsAreThoseOfEveryMaster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3, 0)
	found, err := redisprobe.Hazards(t.Context(), open(t, cluster.URL()))
	expect.Error(t, "Hazards of a cluster", err, nil)
	expect.MustEqual(t, fmt.Sprintf("number of hazards, which are %q", found), len(found), 3)
	if found[0].Server == found[1].Server {
		t.Errorf("hazards of a cluster: got two of %s, want one of each master", found[0].Server)
	}
}

// A server that does not let this user see its settings is not guessed at.
func TestHazardsOfASilentServer(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	do(t, server, "ACL", "SETUSER", "app", "on", ">pw", "~*", "&*", "+@all", "-config")
	found, err := redisprobe.Hazards(t.Context(), open(t, strings.Replace(server.URL(), "redis://", "redis://app:pw@", 1)))
	expect.Error(t, "Hazards without a right to CONFIG", err, nil)
	expect.Equal(t, "Hazards without a right to CONFIG", found, nil)
	server.Kill()
	_, err = redisprobe.Hazards(t.Context(), open(t, server.URL()))
	expect.Error(t, "a server that is down", err, redisstore.ErrUnavailable)
}

func TestHazardsOfTheEmbeddedStore(t *testing.T) {
	t.Parallel()
	found, err := redisprobe.Hazards(t.Context(), open(t, "embedded:"))
	expect.Error(t, "Hazards", err, nil)
	expect.Equal(t, "Hazards", found, nil)
}
