package cli

import (
	"encoding/pem"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/doctor"
	"github.com/coatcheck/coatcheck/internal/redisprobe"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/proctest"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/redisstore"
)

// diagnose runs doctor for machines.
func diagnose(t *testing.T, args ...string) (code int, found examined) {
	t.Helper()
	ran := execute(t, nil, append([]string{"doctor", "--json"}, args...)...)
	ran.into(&found)
	return ran.code, found
}

// severities checks how bad the worst finding of each check is.
func (f examined) severities(t *testing.T, want map[string]doctor.Severity) {
	t.Helper()
	for id, severity := range want {
		if worst := f.worst(id); worst.Severity != severity {
			t.Errorf("the worst finding of %s: got %v, want %v: %+v", id, worst.Severity, severity, worst)
		}
	}
}

// worst is the worst finding of a check; its severity is below all if there is none.
func (f examined) worst(id string) doctor.Finding {
	worst := doctor.Finding{Severity: -1}
	for _, one := range f.Findings {
		if one.ID == id && one.Severity > worst.Severity {
			worst = one
		}
	}
	return worst
}

// Each bad setting is made at a server that was in order, and found.
func TestDoctorFindsEachBadSetting(t *testing.T) {
	srv := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always", "--maxmemory", "200mb")
	set := func(t *testing.T, name, value string) {
		t.Helper()
		expect.NoError(t, "set a setting of Redis", srv.Client().ConfigSet(t.Context(), name, value).Err())
	}
	// a slow machine decides nothing
	at := []string{"--redis", srv.URL(), "--store-timeout", "1m", "--clock-skew", "1m"}
	if code, found := diagnose(t, at...); code != done || found.Worst > doctor.Note || found.Kind != "standalone" || len(found.Servers) != 1 || found.Servers[0].Role != "master" || found.Servers[0].Version == "" {
		t.Fatalf("doctor of a server in order: got exit code %d and %+v, want %d, notes at worst, and one master with a version", code, found, done)
	}
	for _, row := range []struct {
		id, setting, bad, good string
		says                   doctor.Severity
	}{
		{"persistence", "appendonly", "no", "yes", doctor.Critical},
		{"appendfsync", "appendfsync", "no", "always", doctor.Warning},
		{"appendfsync", "appendfsync", "everysec", "always", doctor.Note},
		{"eviction", "maxmemory-policy", "allkeys-lru", "noeviction", doctor.Critical},
		{"memory", "maxmemory", "0", "200mb", doctor.Note},
		{"min-replicas", "min-replicas-to-write", "2", "0", doctor.Critical},
		{"write", "min-replicas-to-write", "2", "0", doctor.Critical},
		{"timeout", "timeout", "3600", "0", doctor.Note},
		{"tcp-keepalive", "tcp-keepalive", "0", "300", doctor.Note},
		{"notifications", "notify-keyspace-events", "KEA", "", doctor.Note},
		{"script-limit", "lua-time-limit", "0", "5000", doctor.Note},
	} {
		set(t, row.setting, row.bad)
		code, found := diagnose(t, at...)
		if worst := found.worst(row.id); worst.Severity != row.says || worst.Risk == "" || worst.Fix == "" {
			t.Errorf("%s with %s %s: got %+v, want %v with its risk and its fix", row.id, row.setting, row.bad, worst, row.says)
		}
		expect.Equal(t, "exit code with "+row.setting+" "+row.bad, code, map[bool]int{true: failed}[row.says > doctor.Note])
		set(t, row.setting, row.good)
		if _, found := diagnose(t, at...); found.worst(row.id).Severity >= row.says {
			t.Errorf("%s with %s %s: got %+v, want less than %v", row.id, row.setting, row.good, found.worst(row.id), row.says)
		}
	}
	set(t, "maxmemory", "3mb")
	_, found := diagnose(t, append(at, "--read-only")...)
	found.severities(t, map[string]doctor.Severity{"write": -1}) // it is not tried
	if worst := found.worst("memory"); worst.Severity > doctor.Critical {
		t.Errorf("memory with maxmemory 3mb: got %+v, want critical at worst", worst)
	}
}

func TestDoctorForPeopleTellsTheWorstFirstWithItsFix(t *testing.T) {
	srv := redistest.Start(t, "--maxmemory-policy", "allkeys-lru", "--maxmemory", "200mb")
	told := execute(t, nil, "doctor", "--redis", srv.URL()).exits(failed)
	expect.Equal(t, "stderr of "+told.line, told.stderr, "")
	if begin := srv.URL() + " (standalone)\n\nCRITICAL  "; !strings.HasPrefix(told.stdout, begin) {
		t.Errorf("%s: got %s, want it to begin with %q", told.line, told.stdout, begin)
	}
	told.prints("CRITICAL  eviction", "risk: keys vanish", "fix:  CONFIG SET maxmemory-policy noeviction", "ok        version", "2 critical, ")
	told.conceals("\x1b") // there is no terminal
	for failOn, want := range map[string]int{"never": done, "critical": failed, "warning": failed} {
		execute(t, nil, "doctor", "--redis", srv.URL(), "--fail-on", failOn).exits(want)
	}
}

func TestDoctorOfAPairLooksAtItsReplicas(t *testing.T) {
	t.Parallel()
	set := redistest.StartSentinel(t, 1)
	master, replica := set.Master(), set.Replicas()[0]
	at := []string{"--redis", set.URL(), "--store-timeout", "1m", "--clock-skew", "1m", "--worker-ttl", "400ms"}
	_, found := diagnose(t, append(at, "--ack", "1")...)
	expect.Equal(t, "kind of a pair", found.Kind, "sentinel")
	expect.Equal(t, "servers of a pair", len(found.Servers), 2)
	found.severities(t, map[string]doctor.Severity{
		"replicas": doctor.OK, "ack": doctor.OK, "wait-reach": doctor.OK, "sentinels": doctor.OK, "sentinel-quorum": doctor.OK,
		"clock-servers": doctor.OK, "sentinel-down-after": doctor.Warning,
	})
	_, found = diagnose(t, at...)
	found.severities(t, map[string]doctor.Severity{"replicas": doctor.Warning})
	expect.Contains(t, "fix of replicas without --ack", found.worst("replicas").Fix, "--ack 1")
	_, found = diagnose(t, append(at, "--ack", "2")...)
	found.severities(t, map[string]doctor.Severity{"replicas": doctor.Critical, "wait-reach": doctor.Critical})
	expect.NoError(t, "set a setting of Redis", replica.Client().ConfigSet(t.Context(), "replica-priority", "0").Err())
	_, found = diagnose(t, at...)
	found.severities(t, map[string]doctor.Severity{"replica-priority": doctor.Warning})
	code, found := diagnose(t, "--redis", replica.URL())
	expect.Equal(t, "exit code of doctor at the replica", code, failed)
	found.severities(t, map[string]doctor.Severity{"role": doctor.Critical})
	expect.Contains(t, "fix of the role", found.worst("role").Fix, master.Addr())
}

func TestDoctorOfAClusterFindsASlotWithoutAMaster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3, 0)
	at := []string{"--redis", cluster.URL(), "--store-timeout", "1m"}
	_, found := diagnose(t, at...)
	expect.Equal(t, "kind of a cluster", found.Kind, "cluster")
	found.severities(t, map[string]doctor.Severity{"cluster-slots": doctor.OK, "cluster-nodes": doctor.OK})
	eventually(t, "the slot is missed", func() bool {
		// Each time anew: a node takes a slot back that another has still announced. One without it
		// refuses.
		for _, node := range cluster.Nodes() {
			_ = node.Client().ClusterDelSlots(t.Context(), 7000).Err()
		}
		code, found := diagnose(t, at...)
		missed := found.worst("cluster-slots")
		return code == failed && missed.Severity == doctor.Critical && strings.Contains(missed.Fix, "redis-cli --cluster fix")
	})
}

func TestDoctorOfAUserThatMayNotRunScripts(t *testing.T) {
	srv := redistest.Start(t)
	if err := srv.Client().Do(t.Context(), "ACL", "SETUSER", "app", "on", ">word-of-app", "~*", "&*", "+@all", "-eval", "-evalsha").Err(); err != nil {
		t.Fatalf("make a user of Redis: %v", err)
	}
	url := strings.Replace(srv.URL(), "//", "//app:word-of-app@", 1)
	var found examined
	execute(t, nil, "doctor", "--json", "--redis", url).exits(failed).conceals("word-of-app").into(&found)
	found.severities(t, map[string]doctor.Severity{"scripts": doctor.Critical})
	expect.Contains(t, "the rights that were found", found.worst("rights").Found, "EVAL, EVALSHA")
}

func TestDoctorWithNobodyToAsk(t *testing.T) {
	srv := redistest.Start(t)
	srv.Kill()
	for _, row := range []struct {
		code int
		says string
		args []string
	}{
		{tryLater, "refused", []string{"--redis", srv.URL()}},
		{tryLater, "no server could be asked", []string{"--server", "http://" + proctest.ClosedPort(t)}},
		{usage, "embedded store", []string{"--redis", "embedded:"}},
		{usage, "URL", []string{"--redis", "nonsense"}},
		{usage, "http://host:port", []string{"--server", "nonsense"}},
		{usage, "name one of them", []string{"--server", "http://h", "--redis", "redis://h"}},
		{usage, "fail-on", []string{"--redis", srv.URL(), "--fail-on", "note"}},
		{usage, "unexpected", []string{"extra"}},
	} {
		ran := execute(t, nil, append([]string{"doctor"}, row.args...)...).exits(row.code, row.says)
		expect.Equal(t, "stdout of "+ran.line, ran.stdout, "")
	}
}

func TestDoctorOfARunningService(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	p := serve(t, "--redis", redis.URL())
	code, found := diagnose(t, "--server", p.banner.URL, "--store-timeout", "1m")
	expect.Equal(t, "exit code of doctor at a service", code, failed)
	expect.Equal(t, "kind of a service", found.Kind, "service")
	found.severities(t, map[string]doctor.Severity{
		"service-workers": doctor.Warning, // its pool is in quarantine
		"service-ready":   doctor.OK, "service-clock": doctor.OK, "service-latency": doctor.OK, "service-problems": doctor.OK,
		"service-keys": doctor.Note, "service-store": doctor.Note,
	})
	redis.Kill()
	code, found = diagnose(t, "--server", p.banner.URL)
	expect.Equal(t, "exit code of doctor at a service whose Redis is gone", code, failed)
	found.severities(t, map[string]doctor.Severity{"service-ready": doctor.Critical})
}

// A service whose certificate is not trusted is told of as that, and is not shown the key.
func TestDoctorDoesNotShowItsKeyToAServiceThatItDoesNotTrust(t *testing.T) {
	t.Parallel()
	var shown []string
	other := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		shown = append(shown, r.Header.Get("Authorization"))
		w.Header().Set("Date", time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat))
		w.WriteHeader(http.StatusTeapot)
	}))
	other.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	other.StartTLS()
	defer other.Close()
	var found examined
	execute(t, map[string]string{"COATCHECK_API_KEY": "cck_one_secret"}, "doctor", "--json", "--server", other.URL).
		exits(failed).conceals("secret").into(&found)
	found.severities(t, map[string]doctor.Severity{
		"service-tls": doctor.Critical, "service-clock": doctor.Warning, "service-problems": doctor.Warning,
	})
	expect.Contains(t, "what was found of TLS", found.worst("service-tls").Found, "not trusted")
	expect.Contains(t, "what was found of readiness", found.worst("service-ready").Found, "418")
	if len(shown) < 10 || slices.ContainsFunc(shown, func(header string) bool { return header != "" }) {
		t.Errorf("Authorization that a service was shown that is not trusted: got %q, want 10 requests or more without", shown)
	}
	// One that it trusts is.
	shown = nil
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: other.Certificate().Raw}), 0o600); err != nil {
		t.Fatalf("write the file: %v", err)
	}
	_, found = diagnose(t, "--server", other.URL, "--server-ca", ca, "--api-key", "cck_one_secret")
	found.severities(t, map[string]doctor.Severity{"service-tls": doctor.OK, "service-key": doctor.Warning})
	if !slices.Contains(shown, "Bearer cck_one_secret") || !slices.Contains(shown, "") {
		t.Errorf("Authorization that a service was shown that is trusted: got %q, want requests with the key and without", shown)
	}
}

// On Valkey it says so; the other tests run there as well, with REDIS_SERVER.
func TestDoctorNamesTheKindOfServer(t *testing.T) {
	srv := redistest.Start(t)
	want := "Redis "
	if strings.Contains(os.Getenv("REDIS_SERVER"), "valkey") {
		want = "Valkey "
	}
	_, found := diagnose(t, "--redis", srv.URL())
	found.severities(t, map[string]doctor.Severity{"version": doctor.OK})
	if got := found.worst("version").Found; !strings.HasPrefix(got, want) {
		t.Errorf("the version that was found: got %q, want it to begin with %q", got, want)
	}
}

// A right that is missing is named by doctor, and by a service that does not start without it.
func TestMissingRightsOfTheRedisUserAreNamed(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t, "--appendonly", "yes")
	rights := redisprobe.Rights(redisstore.ModeStandalone, "coatcheck:")
	at := func(name string, rules ...string) []string {
		words := []any{"ACL", "SETUSER", name, "on", ">word"}
		for _, rule := range rules {
			words = append(words, rule)
		}
		expect.Error(t, "ACL SETUSER", srv.Client().Do(t.Context(), words...).Err(), nil)
		return []string{"--redis", strings.Replace(srv.URL(), "://", "://"+name+":word@", 1), "--store-timeout", "1m"}
	}
	_, found := diagnose(t, at("all", rights...)...)
	found.severities(t, map[string]doctor.Severity{"commands": doctor.OK, "rights": doctor.OK, "scripts": doctor.OK, "write": doctor.OK})
	few := at("few", append(rights, "-pexpire", "-evalsha")...)
	_, found = diagnose(t, few...)
	found.severities(t, map[string]doctor.Severity{"rights": doctor.Critical})
	expect.Contains(t, "what doctor found", found.worst("rights").Found, "EVALSHA, PEXPIRE")
	expect.Contains(t, "the fix", found.worst("rights").Fix, "+evalsha +pexpire")
	for _, command := range [][]string{
		{"serve", "--listen", "127.0.0.1:0"},
		{"gateway", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--upstream", "http://127.0.0.1:1", "--routes", file(t, "routes: [{match: POST /pay}]")},
	} {
		execute(t, nil, append(command, few...)...).exits(usage, "does not let the user run EVALSHA, PEXPIRE",
			"+evalsha +pexpire").conceals("word@")
	}
}

// A service that is asked over HTTP has no URL of a store here, and not the embedded store's
// timeout for that.
func TestDoctorHoldsAServiceAgainstTheTimeoutOfARedis(t *testing.T) {
	for url, want := range map[string]time.Duration{"": time.Second, "redis://h": time.Second, "embedded:": 30 * time.Second} {
		e := examination{source: &source{}}
		e.Service.Store.URL = url
		expect.Equal(t, "store timeout of "+url, e.settings().StoreTimeout, want)
	}
}
