package main

import (
	"encoding/json"
	"encoding/pem"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/doctor"
	"github.com/coatcheck/coatcheck/internal/redistest"
)

// diagnose runs doctor for machines.
func diagnose(t *testing.T, args ...string) (code int, found examined) {
	t.Helper()
	code, stdout, stderr := coatcheck(t, nil, append([]string{"doctor", "--json"}, args...)...)
	if err := json.Unmarshal([]byte(stdout), &found); err != nil {
		t.Fatalf("%d %s %s: %v", code, stdout, stderr, err)
	}
	return code, found
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
		if err := srv.Client().ConfigSet(t.Context(), name, value).Err(); err != nil {
			t.Fatal(err)
		}
	}
	at := []string{"--redis", srv.URL(), "--store-timeout", "1m", "--clock-skew", "1m"} // a slow machine decides nothing
	if code, found := diagnose(t, at...); code != done || found.Worst > doctor.Note || found.Kind != "standalone" || len(found.Servers) != 1 || found.Servers[0].Role != "master" || found.Servers[0].Version == "" {
		t.Fatalf("%d %+v", code, found)
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
			t.Errorf("%s %s: %+v", row.setting, row.bad, worst)
		}
		if want := map[bool]int{true: failed}[row.says > doctor.Note]; code != want {
			t.Errorf("%s %s: exit code %d", row.setting, row.bad, code)
		}
		set(t, row.setting, row.good)
		if _, found := diagnose(t, at...); found.worst(row.id).Severity >= row.says {
			t.Errorf("%s %s: %+v", row.setting, row.good, found.worst(row.id))
		}
	}
	set(t, "maxmemory", "3mb")
	if _, found := diagnose(t, append(at, "--read-only")...); found.worst("memory").Severity > doctor.Critical || found.worst("write").Severity >= 0 {
		t.Errorf("%+v", found)
	}
}

func TestDoctorForPeopleTellsTheWorstFirstWithItsFix(t *testing.T) {
	srv := redistest.Start(t, "--maxmemory-policy", "allkeys-lru", "--maxmemory", "200mb")
	code, stdout, stderr := coatcheck(t, nil, "doctor", "--redis", srv.URL())
	if code != failed || stderr != "" || !strings.HasPrefix(stdout, srv.URL()+" (standalone)\n\nCRITICAL  ") {
		t.Fatalf("%d %s%s", code, stdout, stderr)
	}
	for _, part := range []string{"CRITICAL  eviction", "risk: keys vanish", "fix:  CONFIG SET maxmemory-policy noeviction", "ok        version", "2 critical, "} {
		if !strings.Contains(stdout, part) {
			t.Errorf("%q is missing in\n%s", part, stdout)
		}
	}
	if strings.Contains(stdout, "\x1b") {
		t.Error("escapes where there is no terminal")
	}
	for failOn, want := range map[string]int{"never": done, "critical": failed, "warning": failed} {
		if code, _, _ := coatcheck(t, nil, "doctor", "--redis", srv.URL(), "--fail-on", failOn); code != want {
			t.Errorf("--fail-on %s: %d", failOn, code)
		}
	}
}

func TestDoctorOfAPairLooksAtItsReplicas(t *testing.T) {
	set := redistest.StartSentinel(t, 1)
	master, replica := set.Master(), set.Replicas()[0]
	at := []string{"--redis", set.URL(), "--store-timeout", "1m", "--clock-skew", "1m", "--worker-ttl", "400ms"}
	_, found := diagnose(t, append(at, "--ack", "1")...)
	if found.Kind != "sentinel" || len(found.Servers) != 2 || found.worst("replicas").Severity != doctor.OK || found.worst("ack").Severity != doctor.OK || found.worst("wait-reach").Severity != doctor.OK ||
		found.worst("sentinels").Severity != doctor.OK || found.worst("sentinel-quorum").Severity != doctor.OK || found.worst("clock-servers").Severity != doctor.OK || found.worst("sentinel-down-after").Severity != doctor.Warning {
		t.Fatalf("%+v", found)
	}
	if _, found = diagnose(t, at...); found.worst("replicas").Severity != doctor.Warning || !strings.Contains(found.worst("replicas").Fix, "--ack 1") {
		t.Errorf("%+v", found.worst("replicas"))
	}
	if _, found = diagnose(t, append(at, "--ack", "2")...); found.worst("replicas").Severity != doctor.Critical || found.worst("wait-reach").Severity != doctor.Critical {
		t.Errorf("%+v", found)
	}
	if err := replica.Client().ConfigSet(t.Context(), "replica-priority", "0").Err(); err != nil {
		t.Fatal(err)
	}
	if _, found = diagnose(t, at...); found.worst("replica-priority").Severity != doctor.Warning {
		t.Errorf("%+v", found.worst("replica-priority"))
	}
	if code, found := diagnose(t, "--redis", replica.URL()); code != failed || found.worst("role").Severity != doctor.Critical || !strings.Contains(found.worst("role").Fix, master.Addr()) {
		t.Errorf("%d %+v", code, found.worst("role"))
	}
}

func TestDoctorOfAClusterFindsASlotWithoutAMaster(t *testing.T) {
	cluster := redistest.StartCluster(t, 3, 0)
	at := []string{"--redis", cluster.URL(), "--store-timeout", "1m"}
	if _, found := diagnose(t, at...); found.Kind != "cluster" || found.worst("cluster-slots").Severity != doctor.OK || found.worst("cluster-nodes").Severity != doctor.OK {
		t.Fatalf("%+v", found)
	}
	for _, node := range cluster.Nodes() {
		_ = node.Client().ClusterDelSlots(t.Context(), 7000).Err() // one that knows of it already refuses
	}
	eventually(t, "the slot is missed", func() bool {
		code, found := diagnose(t, at...)
		return code == failed && found.worst("cluster-slots").Severity == doctor.Critical && strings.Contains(found.worst("cluster-slots").Fix, "redis-cli --cluster fix")
	})
}

func TestDoctorOfAUserThatMayNotRunScripts(t *testing.T) {
	srv := redistest.Start(t)
	if err := srv.Client().Do(t.Context(), "ACL", "SETUSER", "app", "on", ">word-of-app", "~*", "&*", "+@all", "-eval", "-evalsha").Err(); err != nil {
		t.Fatal(err)
	}
	url := strings.Replace(srv.URL(), "//", "//app:word-of-app@", 1)
	code, stdout, _ := coatcheck(t, nil, "doctor", "--json", "--redis", url)
	var found examined
	if err := json.Unmarshal([]byte(stdout), &found); err != nil {
		t.Fatal(err)
	}
	if code != failed || found.worst("scripts").Severity != doctor.Critical || !strings.Contains(found.worst("rights").Found, "EVAL, EVALSHA") || strings.Contains(stdout, "word-of-app") {
		t.Errorf("%d %s", code, stdout)
	}
}

func TestDoctorWithNobodyToAsk(t *testing.T) {
	srv := redistest.Start(t)
	srv.Kill()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = closed.Close()
	for _, row := range []struct {
		code int
		says string
		args []string
	}{
		{tryLater, "refused", []string{"--redis", srv.URL()}},
		{tryLater, "nobody could be asked", []string{"--server", "http://" + closed.Addr().String()}},
		{usage, "embedded store", []string{"--redis", "embedded:"}},
		{usage, "URL", []string{"--redis", "nonsense"}},
		{usage, "http://host:port", []string{"--server", "nonsense"}},
		{usage, "name one of them", []string{"--server", "http://h", "--redis", "redis://h"}},
		{usage, "fail-on", []string{"--redis", srv.URL(), "--fail-on", "note"}},
		{usage, "unexpected", []string{"extra"}},
	} {
		if code, stdout, stderr := coatcheck(t, nil, append([]string{"doctor"}, row.args...)...); code != row.code || stdout != "" || !strings.Contains(stderr, row.says) {
			t.Errorf("%v: %d %s%s", row.args, code, stdout, stderr)
		}
	}
}

func TestDoctorOfARunningService(t *testing.T) {
	redis := redistest.Start(t)
	p := serve(t, "--redis", redis.URL())
	code, found := diagnose(t, "--server", p.banner.URL, "--store-timeout", "1m")
	if code != failed || found.Kind != "service" || found.worst("service-ready").Severity != doctor.OK || found.worst("service-workers").Severity != doctor.Warning || // its pool is in quarantine
		found.worst("service-clock").Severity != doctor.OK || found.worst("service-latency").Severity != doctor.OK || found.worst("service-problems").Severity != doctor.OK ||
		found.worst("service-keys").Severity != doctor.Note || found.worst("service-store").Severity != doctor.Note {
		t.Errorf("%d %+v", code, found)
	}
	redis.Kill()
	if code, found = diagnose(t, "--server", p.banner.URL); code != failed || found.worst("service-ready").Severity != doctor.Critical {
		t.Errorf("%d %+v", code, found.worst("service-ready"))
	}
}

// A service whose certificate is not trusted is told of as that, and is not shown the key.
func TestDoctorDoesNotShowItsKeyToAServiceThatItDoesNotTrust(t *testing.T) {
	var shown []string
	other := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		shown = append(shown, r.Header.Get("Authorization"))
		w.Header().Set("Date", time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat))
		w.WriteHeader(http.StatusTeapot)
	}))
	other.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	other.StartTLS()
	defer other.Close()
	code, stdout, stderr := coatcheck(t, map[string]string{"COATCHECK_API_KEY": "cck_one_secret"}, "doctor", "--json", "--server", other.URL)
	var found examined
	if err := json.Unmarshal([]byte(stdout), &found); err != nil {
		t.Fatalf("%d %s %s", code, stdout, stderr)
	}
	if code != failed || found.worst("service-tls").Severity != doctor.Critical || !strings.Contains(found.worst("service-tls").Found, "not trusted") ||
		!strings.Contains(found.worst("service-ready").Found, "418") || found.worst("service-clock").Severity != doctor.Warning || found.worst("service-problems").Severity != doctor.Warning {
		t.Errorf("%d %+v", code, found)
	}
	if len(shown) < 10 || slices.ContainsFunc(shown, func(header string) bool { return header != "" }) || strings.Contains(stdout+stderr, "secret") {
		t.Errorf("%q", shown)
	}
	// One that it trusts is.
	shown = nil
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: other.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, found = diagnose(t, "--server", other.URL, "--ca", ca, "--api-key", "cck_one_secret"); found.worst("service-tls").Severity != doctor.OK || found.worst("service-key").Severity != doctor.Warning {
		t.Errorf("%+v", found)
	}
	if !slices.Contains(shown, "Bearer cck_one_secret") || !slices.Contains(shown, "") {
		t.Errorf("%q", shown)
	}
}

// On Valkey it says so; the other tests run there as well, with REDIS_SERVER.
func TestDoctorNamesTheKindOfServer(t *testing.T) {
	srv := redistest.Start(t)
	want := "Redis "
	if strings.Contains(os.Getenv("REDIS_SERVER"), "valkey") {
		want = "Valkey "
	}
	if _, found := diagnose(t, "--redis", srv.URL()); !strings.HasPrefix(found.worst("version").Found, want) || found.worst("version").Severity != doctor.OK {
		t.Errorf("%+v", found.worst("version"))
	}
}
