package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/cmd/coatcheck/internal/config"
	"github.com/coatcheck/coatcheck/counter"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/lock"
	"github.com/coatcheck/coatcheck/snowflake"
	"github.com/coatcheck/coatcheck/workerlease"
)

// coatcheck runs the program in this process and returns what it printed. Its arguments are never
// nil, which cobra takes for those of the test binary.
func coatcheck(t *testing.T, env map[string]string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, err strings.Builder
	code = run(t.Context(), onStore(env, args), func(name string) string { return env[name] }, &out, &err)
	return code, out.String(), err.String()
}

func file(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "coatcheck.yaml")
	expect.NoError(t, "write the file", os.WriteFile(path, []byte(content), 0o600))
	return path
}

func TestFlagBeatsEnvironmentBeatsFileBeatsDefault(t *testing.T) {
	path := file(t, "prefix: from-file\nlisten: 127.0.0.1:1\nack: 1\ndev: true\nredis: redis://h:1\n")
	env := map[string]string{"COATCHECK_CONFIG": path, "COATCHECK_LISTEN": "127.0.0.1:2", "COATCHECK_ACK": "2"}
	var list shownSettings
	execute(t, env, "config", "print", "--json", "--ack=3").exits(done).into(&list)
	got := map[string]string{}
	for _, s := range list.Settings {
		got[s.Name] = s.Value + " by " + s.Source
	}
	for name, want := range map[string]string{
		"prefix": "from-file by file", "listen": "127.0.0.1:2 by environment", "ack": "3 by flag", "dev": "true by file", "request-timeout": "30s by default",
	} {
		expect.Equal(t, "setting "+name, got[name], want)
	}
}

func TestConfigCheckTellsAllFaultsAtOnce(t *testing.T) {
	path := file(t, "colour: red\nlisten: nowhere\nack: [1]\nlog-level:\n")
	env := map[string]string{"COATCHECK_STORE_TIMEOUT": "soon", "COATCHECK_MAX_BODY_BYTES": "-1", "COATCHECK_DEV": "perhaps"}
	execute(t, env, "config", "check", "--config", path, "--log-format", "xml", "--redis", "http://h", "--prefix", "{a}").exits(usage,
		path+` line 1: unknown setting "colour"`, "listen ("+path+" line 2):", "line 3: ack takes one value", "line 4: log-level takes one value",
		"store-timeout (COATCHECK_STORE_TIMEOUT):", "max-body-bytes (COATCHECK_MAX_BODY_BYTES):", "dev (COATCHECK_DEV):", "log-format (--log-format):",
		`unknown scheme "http"`, `prefix "{a}"`,
	)
}

func TestSettingsOfWorkerIDs(t *testing.T) {
	for _, row := range []struct {
		args []string
		want workerlease.Config
		pool string
	}{
		{nil, workerlease.Config{NewPools: workerlease.NewPoolsTrust, Skew: time.Second}, "default"},
		{[]string{"--redis="}, workerlease.Config{NewPools: workerlease.NewPoolsTrust, Skew: time.Second}, "default"},
		{[]string{"--new-pools", "wait"}, workerlease.Config{NewPools: workerlease.NewPoolsWait, Skew: time.Second}, "default"},
		{[]string{"--redis", "redis://h"}, workerlease.Config{NewPools: workerlease.NewPoolsWait, Skew: time.Second}, "default"},
		{[]string{"--redis", "redis://h", "--dev"}, workerlease.Config{NewPools: workerlease.NewPoolsTrust, Skew: time.Second}, "default"},
		{[]string{"--redis", "redis://h", "--dev", "--new-pools", "wait"}, workerlease.Config{NewPools: workerlease.NewPoolsWait, Skew: time.Second}, "default"},
		{[]string{"--redis", "redis+cluster://h", "--new-pools", "trust", "--clock-skew", "250ms", "--worker-cooldown", "2h", "--id-pool", "orders"},
			workerlease.Config{NewPools: workerlease.NewPoolsTrust, Skew: 250 * time.Millisecond, Cooldown: 2 * time.Hour}, "orders"},
		{[]string{"--redis", "redis://h", "--worker-longest-ttl", "10m"}, workerlease.Config{NewPools: workerlease.NewPoolsWait, Skew: time.Second, LongestTTL: 10 * time.Minute}, "default"},
		{[]string{"--redis", "redis://h", "--id-pool=", "--worker-cooldown=0s"}, workerlease.Config{NewPools: workerlease.NewPoolsWait, Skew: time.Second}, ""},
	} {
		command := &cobra.Command{}
		l := config.BindService(command.Flags())
		if err := errors.Join(command.ParseFlags(row.args), l.Load(command.Flags(), func(string) string { return "" })); err != nil {
			t.Errorf("settings %q: %v", row.args, err)
		}
		got := l.Service.Server.Workers
		expect.Equal(t, fmt.Sprintf("workers with %q", row.args), got, row.want)
		expect.Equal(t, fmt.Sprintf("pool of ids with %q", row.args), l.Service.Server.IDPool, row.pool)
		expect.Error(t, fmt.Sprintf("check of workers with %q", row.args), got.Check(), nil)
	}
	for _, args := range [][]string{
		{"--new-pools", "guess"}, {"--clock-skew", "0s"}, {"--clock-skew", "61s"}, {"--clock-skew", "1"}, {"--worker-cooldown", "-1s"}, {"--worker-longest-ttl", "25h"}, {"--worker-cooldown", "25h"},
		{"--id-pool", "a b"}, {"--id-pool", "a/b"}, {"--identity", "é"}, {"--identity", strings.Repeat("a", 201)},
	} {
		execute(t, nil, append([]string{"config", "check"}, args...)...).exits(usage, args[0])
	}
}

func TestPoolsInTheSettings(t *testing.T) {
	want := map[string]workerlease.Pin{
		"orders":   {Shape: workerlease.Shape{Layout: "41/5/5/12", Datacenter: 3, Epoch: time.Date(2024, 2, 29, 0, 0, 0, 0, time.UTC)}, TTL: 10 * time.Minute},
		"eu:plain": {Shape: workerlease.Shape{Layout: "41/10/12", Epoch: snowflake.DefaultEpoch}},
	}
	path := file(t, "redis: redis://h\npools:\n  orders:\n    layout: 41/5/5/12\n    epoch: 2024-02-29T00:00:00Z\n    datacenter: 3\n    ttl: 10m\n  eu:plain: {}\n")
	const line = "{orders: {layout: 41/5/5/12, epoch: 2024-02-29T00:00:00Z, datacenter: 3, ttl: 10m}, 'eu:plain': {}}"
	for _, args := range [][]string{{"--config", path}, {"--pools", line}} {
		command := &cobra.Command{}
		l := config.BindService(command.Flags())
		if err := errors.Join(command.ParseFlags(args), l.Load(command.Flags(), func(string) string { return "" })); err != nil {
			t.Errorf("settings %q: %v", args, err)
		}
		expect.Equal(t, fmt.Sprintf("pools with %q", args), l.Service.Server.Workers.Pools, want)
	}
	for text, says := range map[string]string{
		"[orders]": "not a map of pools", "orders": "not a map of pools", "{'a b': {}}": "is not a name", "{a: {layout: x}}": "pool a: layout", "{a: {colour: red}}": "pool a: colour",
		"{a: {datacenter: 3}}": "pool a: datacenter: 0 to 0", "{a: {layout: 41/5/5/12, datacenter: 32}}": "0 to 31", "{a: {epoch: 2999-01-01T00:00:00Z}}": "pool a: epoch",
		"{a: {ttl: 25h}}": `pool a: ttl: "25h" is not a duration from 100ms to 24h`, "{a: {ttl: 30}}": `"30" is not a duration`, "{a: {datacenter: x}}": `"x" is not a whole number`,
		"{a: {epoch: yesterday}}": `pool a: epoch: "yesterday" is not a time, such as 2020-01-01T00:00:00Z`,
	} {
		execute(t, nil, "config", "check", "--pools", text).exits(usage, "pools (--pools)", says)
	}
	// one whose layout has ended is refused where it is used, and all else is served
	execute(t, nil, "config", "check", "--pools", "{a: {layout: 31/10/12}}").exits(done)
}

func TestServeRefusesTheSameFaults(t *testing.T) {
	refused := execute(t, nil, "serve", "--ack", "1", "--listen", "x").exits(usage, "listen", "no replicas")
	expect.Equal(t, "stdout of "+refused.line, refused.stdout, "")
}

// A variable that is not set would begin an empty store in memory, which forgets at its end.
func TestStoreHasToBeNamed(t *testing.T) {
	routes := file(t, "routes: [{match: POST /payments}]")
	gateway := []string{"gateway", "--upstream", "http://127.0.0.1:1", "--routes", routes, "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"}
	for _, args := range [][]string{
		{"serve", "--listen", "127.0.0.1:0"}, {"config", "check"}, {"config", "check", "gateway", "--upstream", "http://127.0.0.1:1", "--routes", routes},
		gateway,
	} {
		refused := execute(t, map[string]string{"COATCHECK_REDIS": ""}, args...).exits(usage, "redis: missing", "--redis embedded:", "--dev")
		expect.Equal(t, "stdout of "+refused.line, refused.stdout, "")
	}
	for _, args := range [][]string{
		{"config", "check", "--dev"}, {"config", "check", "--redis", "embedded:"}, append(gateway, "--check"),
	} {
		execute(t, map[string]string{"COATCHECK_REDIS": ""}, args...).exits(done)
	}
}

func TestConfigFileThatCanNotBeRead(t *testing.T) {
	for _, path := range map[string]string{"missing": "/does/not/exist.yaml", "not YAML": file(t, "\t: ["), "a list": file(t, "- a\n- b\n")} {
		execute(t, nil, "config", "check", "--config", path).exits(usage, path)
	}
}

func TestConfigPrintHidesPasswords(t *testing.T) {
	for _, url := range []string{
		"redis://user:hunter2@h:1/0", "redis+sentinel://user:hunter2@h1,h2/m?sentinel_password=hunter2", "redis+cluster://:hunter2@h1,h2",
	} {
		execute(t, nil, "config", "print", "--redis", url).exits(done).prints("***@h").conceals("hunter2")
	}
}

func TestConfigEnvListsEverySetting(t *testing.T) {
	listed := execute(t, map[string]string{"COATCHECK_ACK": "nonsense"}, "config", "env").exits(done)
	for _, s := range config.ServiceSettings(&config.Service{}) {
		listed.prints("--"+s.Name, s.Variable())
		if err := s.Parse(s.Value); err != nil {
			t.Errorf("the default of %s: %v", s.Name, err)
		}
	}
}

func TestSettingsOfCountersAndLocks(t *testing.T) {
	for _, row := range []struct {
		args     []string
		counters counter.Config
		locks    lock.Config
	}{
		{nil, counter.Config{AfterLoss: counter.AfterLossMovePast, HoldOff: counter.DefaultHoldOff}, lock.Config{AfterLoss: lock.AfterLossGrant, Skew: time.Second}},
		{[]string{"--counter-after-loss", "refuse", "--counter-margin", "5000", "--counter-hold-off", "1m"},
			counter.Config{AfterLoss: counter.AfterLossRefuse, Margin: 5000, HoldOff: time.Minute}, lock.Config{AfterLoss: lock.AfterLossGrant, Skew: time.Second}},
		{[]string{"--lock-after-loss", "wait", "--lock-longest-ttl", "5m", "--clock-skew", "2s", "--counter-margin="},
			counter.Config{AfterLoss: counter.AfterLossMovePast, HoldOff: counter.DefaultHoldOff}, lock.Config{AfterLoss: lock.AfterLossWait, LongestTTL: 5 * time.Minute, Skew: 2 * time.Second}},
	} {
		command := &cobra.Command{}
		l := config.BindService(command.Flags())
		if err := errors.Join(command.ParseFlags(row.args), l.Load(command.Flags(), func(string) string { return "" })); err != nil {
			t.Errorf("settings %q: %v", row.args, err)
		}
		asked := fmt.Sprintf(" with %q", row.args)
		expect.Equal(t, "counters"+asked, l.Service.Server.Counters, row.counters)
		expect.Error(t, "check of counters"+asked, l.Service.Server.Counters.Check(), nil)
		expect.Equal(t, "locks"+asked, l.Service.Server.Locks, row.locks)
		expect.Error(t, "check of locks"+asked, l.Service.Server.Locks.Check(), nil)
	}
	for _, args := range [][]string{
		{"--counter-after-loss", "guess"}, {"--counter-margin", "0"}, {"--counter-margin", "1000000000001"}, {"--counter-margin", "-1"}, {"--counter-hold-off", "999ms"},
		{"--counter-hold-off", "61s"}, {"--lock-after-loss", ""}, {"--lock-longest-ttl", "99ms"}, {"--lock-longest-ttl", "9000h"},
	} {
		execute(t, nil, append([]string{"config", "check"}, args...)...).exits(usage, args[0])
	}
}

// The service and the commands that go straight to Redis are set alike: under "wait" nothing is
// granted on a Redis that may have lost leases.
func TestSettingsOfLocksReachServiceAndCommands(t *testing.T) {
	redis := redistest.Start(t)
	set := []string{"--redis", redis.URL(), "--lock-after-loss", "wait", "--lock-longest-ttl", "1h"}
	p := serve(t, set...)
	expect.Equal(t, "code of a lock that may have been lost", p.answers(503, "POST", "/lock/deploy", `{"ttl_ms":1000}`).code(), api.PoolQuarantined)
	execute(t, nil, append(append([]string{"lock", "run"}, set...), "deploy", "--", "true")...).exits(tryLater)
	p.answers(400, "POST", "/lock/deploy", `{"ttl_ms":3600001}`) // longer than the longest
}

func TestConfigCheckTellsWhatWasMeantAndWhatIsThereTwice(t *testing.T) {
	path := file(t, "lisen: 127.0.0.1:1\nstore_timeout: 1s\nlogformat: json\nack: 1\nzzzzzzzzzzzzzzz: 1\n\nack: 2\nTLS-Cert: a\n")
	stderr := execute(t, nil, "config", "check", "--config", path).exits(usage).stderr
	at := 0
	for _, fault := range []string{ // in the order of their lines
		`line 1: unknown setting "lisen"; is listen meant?`, `line 2: unknown setting "store_timeout"; is store-timeout meant?`,
		`line 3: unknown setting "logformat"; is log-format meant?`, "line 5: unknown setting \"zzzzzzzzzzzzzzz\"\n", "line 7: ack is set on line 4 already",
		`line 8: unknown setting "TLS-Cert"; is tls-cert meant?`,
	} {
		next := strings.Index(stderr[at:], path+" "+fault)
		if next < 0 {
			t.Errorf("not told, or not in order: %s\n%s", fault, stderr)
			continue
		}
		at += next
	}
	for _, text := range []string{"", "# nothing\n"} {
		execute(t, nil, "config", "check", "--config", file(t, text)).exits(done)
	}
}

func TestConfigCheckSaysHowItIsWrittenInstead(t *testing.T) {
	for text, says := range map[string]string{
		"ack: 0\n---\nack: 2\n":          "a settings file is one YAML document, and nothing after it",
		"# nothing\n---\nack: 2\n---\n":  "is one YAML document",
		"stamp-pools: [orders, bills]\n": "line 1: stamp-pools takes one value; several have commas between them",
		"pools: [orders]\n":              "not a map of pools, such as {orders:",
	} {
		execute(t, nil, "config", "check", "--config", file(t, text)).exits(usage, says)
	}
	execute(t, nil, "config", "check", "--config", file(t, "---\nack: 0\n...\n")).exits(done)
}

// What is wrong with the gateway's settings is found like what is wrong with the service's, the
// routes file included.
func TestConfigCheckKnowsTheGateway(t *testing.T) {
	routes := file(t, "routes:\n  - match: POST /pay\n    lease_ms: 1\n    polcy: hold\n")
	path := file(t, "routes: "+routes+"\nconsole: off\nbody-timout: 1s\nupstream-idle-timeout: soon\nack: 1\n")
	execute(t, map[string]string{"COATCHECK_UPSTREAM": "ftp://h"}, "config", "check", "gateway", "--config", path, "--admin-listen", "0.0.0.0:1").exits(usage,
		path+` line 2: unknown setting "console"`, path+` line 3: unknown setting "body-timout"; is body-timeout meant?`, "upstream-idle-timeout ("+path+" line 4):",
		"upstream (COATCHECK_UPSTREAM):", "no replicas", "admin-listen: 0.0.0.0:1 can be reached", routes+": line 3: lease_ms", routes+": line 4: unknown field",
	)
	good := file(t, payRoutes)
	execute(t, nil, "config", "check", "gateway", "--upstream", "http://127.0.0.1:1", "--routes", good).exits(done).prints("in order")
	execute(t, nil, "config", "print", "gateway", "--upstream", "http://127.0.0.1:1", "--routes", good).exits(done).prints(`upstream: "http://127.0.0.1:1" # flag`)
	execute(t, nil, "config", "check", "serve", "--listen", "x").exits(usage, "listen")
	listed := execute(t, map[string]string{"COATCHECK_LISTEN": "127.0.0.1:5"}, "config", "env", "gateway").exits(done)
	lacks(t, listed.line, listed.stdout, "127.0.0.1:5")
	for _, s := range config.GatewaySettings(&config.Gateway{Service: &config.Service{}}) {
		listed.prints("--"+s.Name, s.Variable())
		if err := s.Parse(s.Value); err != nil {
			t.Errorf("the default of %s: %v", s.Name, err)
		}
	}
}
