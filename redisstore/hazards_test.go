package redisstore_test

import (
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/internal/redistest"
)

// Each row is how a server was started, and what can be lost by it.
func TestHazardsTellWhatARedisCanLose(t *testing.T) {
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
			found, err := open(t, server.URL(), nil).Hazards(t.Context())
			if err != nil || len(found) != len(row.want) {
				t.Fatalf("%v, %v", found, err)
			}
			for i, want := range row.want {
				if !strings.Contains(found[i].String(), want) || found[i].Server != server.Addr() || found[i].Fix == "" {
					t.Errorf("%q, want %q", found[i], want)
				}
			}
		})
	}
}

func TestHazardsAreThoseOfEveryMaster(t *testing.T) {
	cluster := redistest.StartCluster(t, 3, 0)
	found, err := open(t, cluster.URL(), nil).Hazards(t.Context())
	if err != nil || len(found) != 3 || found[0].Server == found[1].Server {
		t.Errorf("%v, %v", found, err)
	}
}

// A server that does not let this user see its settings is not guessed at.
func TestHazardsOfASilentServer(t *testing.T) {
	server := redistest.Start(t)
	do(t, server, "ACL", "SETUSER", "app", "on", ">pw", "~*", "&*", "+@all", "-config")
	found, err := open(t, strings.Replace(server.URL(), "redis://", "redis://app:pw@", 1), nil).Hazards(t.Context())
	if err != nil || len(found) != 0 {
		t.Errorf("%v, %v", found, err)
	}
	server.Kill()
	_, err = open(t, server.URL(), nil).Hazards(t.Context())
	refused(t, err)
}

func TestHazardsOfTheEmbeddedStore(t *testing.T) {
	if found, err := open(t, "embedded:", nil).Hazards(t.Context()); err != nil || len(found) != 0 {
		t.Errorf("%v, %v", found, err)
	}
}
