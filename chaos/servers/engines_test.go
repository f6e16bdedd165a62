//go:build check && linux

package servers

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/chaos/evidence"
	"github.com/coatcheck/coatcheck/chaos/internal/chaostest"
	"github.com/coatcheck/coatcheck/client"
	"github.com/coatcheck/coatcheck/internal/testing/engines"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
)

// The engines that docs/engines.md calls emulated, by what stands there in brackets.
const (
	noLua          = "no Lua"
	noSetGet       = "no SET with GET"
	noConfig       = "no CONFIG"
	noWait         = "no WAIT"
	noInfo         = "no INFO in scripts"
	noReplid       = "no master_replid"
	zeros          = "zeros"
	trust          = "--restarts trust"
	serves         = "serves"
	unsuitable     = "store-unsuitable"
	doesNotBegin   = "does not start"
	withoutSetting = "–"
)

var emulated = map[string]engines.Engine{
	noLua:    {NoLua: true},
	noSetGet: engines.Redis60,
	noConfig: {Unknown: []string{"CONFIG"}},
	noWait:   {Unknown: []string{"WAIT"}},
	noInfo:   {NotInScripts: []string{"INFO"}},
	noReplid: {Info: map[string]string{"master_replid": "", "master_replid2": ""}},
	zeros:    {Info: map[string]string{"master_replid": engines.Zeros}},
}

// engineCases are the engines, with settings, and what a service says there of tokens, locks and
// limits, and of counters, segments and worker ids; or why it does not begin.
var engineCases = []struct {
	engine, emulation, setting string
	decides, counts            string
	complaint                  string
}{
	{"Valkey 9.1 without its module `lua`", noLua, "", "", "", "runs no Lua"},
	{"Redis 6.0 and before", noSetGet, "", "", "", "is Redis 6.0.16"},
	{"ElastiCache, cluster mode off or on", noConfig, "", serves, serves, ""},
	{"ElastiCache Serverless", noConfig, "", serves, serves, ""},
	{"ElastiCache Serverless", noWait, "", serves, serves, ""},
	{"ElastiCache Serverless", noWait, "--ack 1", "", "", "does not know WAIT"},
	{"Redis Software, Redis Cloud", noInfo, "", serves, unsuitable, ""},
	{"Redis Software, Redis Cloud", noInfo, trust, serves, serves, ""},
	{"Azure Managed Redis", noInfo, "", serves, unsuitable, ""},
	{"Azure Managed Redis", noInfo, trust, serves, serves, ""},
	{"Upstash", noReplid, "", serves, unsuitable, ""},
	{"Upstash", noReplid, trust, serves, serves, ""},
	{"Garnet", zeros, "", serves, unsuitable, ""},
	{"Garnet", zeros, trust, serves, serves, ""},
	{"Kvrocks", noReplid, "", serves, unsuitable, ""},
	{"Kvrocks", noReplid, trust, serves, serves, ""},
	{"Tair, proxy mode", noWait, "", serves, serves, ""},
	{"Tair, proxy mode", noWait, "--ack 1", "", "", "does not know WAIT"},
}

// A service serves on each engine what it can, and refuses the rest by its code; where nothing
// works it does not start, and says why.
func TestServiceOnEveryEmulatedEngine(t *testing.T) {
	t.Parallel()
	for _, one := range engineCases {
		t.Run(strings.Join([]string{one.engine, one.emulation, one.setting}, ", "), func(t *testing.T) {
			t.Parallel()
			url := engines.Start(t, redistest.Start(t).Addr(), emulated[one.emulation]).URL()
			command := exec.CommandContext(context.Background(), chaostest.Coatcheck(t), append([]string{
				"serve", "--redis", url, "--listen", "127.0.0.1:0", "--json", "--access-log", "none", "--new-pools", "trust",
			}, strings.Fields(one.setting)...)...)
			said := slices.Repeat([]string{doesNotBegin}, 6)
			if one.complaint != "" {
				refused(t, command, one.complaint)
			} else {
				said = answersOf(t.Context(), serve(t, command))
				want := slices.Concat(slices.Repeat([]string{one.decides}, 3), slices.Repeat([]string{one.counts}, 3))
				expect.Equal(t, "what it says of tokens, locks, limits, counters, segments and worker ids", said, want)
			}
			setting := withoutSetting
			if one.setting != "" {
				setting = "`" + one.setting + "`"
			}
			chaostest.ProveCase(t, evidence.Engines, append([]string{one.engine, one.emulation, setting}, said...)...)
		})
	}
}

// refused expects that a command ends by itself, with a first line that says why.
func refused(t *testing.T, command *exec.Cmd, why string) {
	t.Helper()
	var stderr bytes.Buffer
	command.Stderr = &stderr
	if err := command.Run(); !errors.As(err, new(*exec.ExitError)) {
		t.Errorf("a service that cannot begin: got %v, want a code of its own", err)
	}
	first, _, _ := strings.Cut(stderr.String(), "\n")
	expect.Contains(t, "its first line", first, why)
}

// answersOf are what a service says to one call of each kind: that it serves, or the code.
func answersOf(ctx context.Context, service *client.Client) (said []string) {
	for _, ask := range []func() error{
		func() error {
			issued, err := service.Issue(ctx, "", time.Hour)
			if err == nil {
				_, err = service.Do(ctx, issued.Value, client.ClaimOptions{}, func(context.Context, *client.Attempt) ([]byte, error) {
					return nil, nil
				})
			}
			return err
		},
		func() error {
			held, err := service.AcquireLock(ctx, lockName, client.LockRequest{TTL: ttl})
			if err == nil {
				err = held.Release(ctx)
			}
			return err
		},
		func() error {
			_, err := service.TakeLimit(ctx, "mails", client.LimitRate{N: 5, Per: time.Minute}, 1)
			return err
		},
		func() error { _, err := service.Incr(ctx, counterName); return err },
		func() error { _, err := service.SegmentIDs(ctx, "invoices", 3); return err },
		func() error {
			lease, err := service.HoldWorker(ctx, poolName, client.WorkerRequest{TTL: ttl}, client.HoldOptions{Wait: -1})
			if err == nil {
				err = lease.Release(ctx, time.Time{})
			}
			return err
		},
	} {
		err := ask()
		refusal, is := errors.AsType[*client.Error](err)
		switch {
		case err == nil:
			said = append(said, serves)
		case is:
			said = append(said, refusal.Code)
		default:
			said = append(said, err.Error())
		}
	}
	return said
}

// Whatever the page of engines says is emulated is tried above, by the emulation that stands there.
func TestEveryEmulatedEngineOfThePageIsTried(t *testing.T) {
	text, err := os.ReadFile("../../docs/engines.md")
	expect.NoError(t, "os.ReadFile", err)
	rows := regexp.MustCompile(`(?m)^\| ([^|]+) \|.*\| emulated \((.*)\) \|$`).FindAllStringSubmatch(string(text), -1)
	if len(rows) < 9 {
		t.Fatalf("%d engines of the page are emulated, want 9 or more", len(rows))
	}
	for _, row := range rows {
		for emulation := range strings.SplitSeq(strings.TrimSuffix(strings.ReplaceAll(row[2], "`", ""), ", each alone"), ", ") {
			tried := false
			for _, one := range engineCases {
				tried = tried || one.engine == row[1] && one.emulation == emulation
			}
			if !tried {
				t.Errorf("%s, emulated (%s): no case of it", row[1], emulation)
			}
		}
	}
}
