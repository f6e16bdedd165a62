package cli

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
)

// A printed command repeats each setting that another shell needs to ask at the same place.
func TestPrintedCommandsAskAtTheSamePlace(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "once.yaml")
	expect.NoError(t, "write the file", os.WriteFile(file, []byte("redis: redis://file\n"), 0o600))
	for _, row := range []struct {
		flags []string
		env   map[string]string
		want  string
	}{
		{nil, nil, ""},
		{[]string{"--server", "http://c:80"}, nil, " --server http://c:80"},
		{[]string{"--server", "http://c:80", "--server-ca", "my ca.pem"}, nil, " --server http://c:80 --server-ca 'my ca.pem'"},
		{[]string{"--redis", "redis://r"}, nil, " --redis redis://r"},
		{[]string{"--redis", "redis://r", "--prefix", "app:", "--ack", "all"}, nil, " --redis redis://r --ack all --prefix app:"},
		{[]string{"--redis", "redis://r"}, map[string]string{"COATCHECK_PREFIX": "app:"}, " --redis redis://r --prefix app:"},
		{nil, map[string]string{"COATCHECK_REDIS": "redis://r", "COATCHECK_PREFIX": "app:"}, " --redis redis://r --prefix app:"},
		{[]string{"--redis", "redis://jo:pw@r"}, nil, ` --redis "$COATCHECK_REDIS"`},
		{[]string{"--redis", "redis://r?client_name=it's"}, nil, ` --redis 'redis://r?client_name=it'\''s'`},
		{[]string{"--config", file}, nil, " --config " + file},
		{[]string{"--config", file, "--prefix", "app:"}, nil, " --config " + file + " --prefix app:"},
		{nil, map[string]string{"COATCHECK_REDIS": "redis://jo:pw@r", "COATCHECK_API_KEY": "cck_secret"}, ` --redis "$COATCHECK_REDIS"`},
	} {
		flags := pflag.NewFlagSet("once", pflag.ContinueOnError)
		s := bindStraight(flags, operationSettings)
		expect.NoError(t, "the flags", flags.Parse(row.flags))
		expect.NoError(t, "the settings", s.Load(flags, func(name string) string { return row.env[name] }))
		expect.Equal(t, "words that a printed command repeats", s.again(), row.want)
	}
}

// The command that settles does what it says from a shell that has nothing but its words.
func TestPrintedSettlementIsOfTheSamePrefix(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	var keys []*onceKey
	for _, prefix := range []string{"app:", "other:"} {
		k := newOnceKey(t, []string{"--redis", redis.URL(), "--prefix", prefix}, "two")
		k.once("kill -9 $$", "--lease", "1s").exits(failed)
		keys = append(keys, k)
	}
	for i, k := range keys {
		k.settled("--not-begun")
		k.once("true").exits(done)
		k.ran(2)
		keys[1].ran(1 + i)
	}
	execute(t, nil, "operation", "ls", "--in-doubt", "--redis", "").exits(usage, "--redis is empty")
}

// A store that is away for longer than any request takes is waited for as long as --wait says.
func TestLockRunWaitsForAStoreThatIsAway(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	redis.Kill()
	waits := start(t, "lock", "run", "--redis", redis.URL(), "--wait", "2m", "deploy", "--", "true")
	time.Sleep(18 * time.Second) // it gave up after 15
	redis.Restart()
	waits.exits(done)
}

// A node that comes second prints nothing, and ends with the code of --conflict-exit-code.
func TestLosersOfLockRunAreQuiet(t *testing.T) {
	t.Parallel()
	lockDoors(t, func(t *testing.T, at []string) {
		one := runLocked(t, at, nil, "echo ready; sleep 600")
		one.ready()
		args := slices.Concat([]string{"lock", "run", "--quiet", "--conflict-exit-code", "0"}, at, []string{"deploy", "--", "true"})
		ran := execute(t, nil, args...).exits(done)
		expect.Equal(t, "what a node prints that comes second", ran.stdout+ran.stderr, "")
	})
}
