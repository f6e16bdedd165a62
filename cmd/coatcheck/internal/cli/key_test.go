package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/access"
	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/cmd/coatcheck/internal/config"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
)

// newKey makes a key with the command and returns it, and what it is worth.
func newKey(t *testing.T, args ...string) madeKey {
	t.Helper()
	var made madeKey
	execute(t, nil, append([]string{"key", "new", "--json"}, args...)...).exits(done).into(&made)
	return made
}

// What is printed for people goes into a file, and the key is good at once.
func TestNewKeyGoesIntoTheFile(t *testing.T) {
	stdout := execute(t, nil, "key", "new", "--principal", "orders", "--role", "admin", "--prefix", "orders:*,bills", "--ttl", "90d", "--rate", "100/s", "--burst", "7",
		"--label", `the "orders" service`).exits(done).stdout
	key, _, _ := strings.Cut(stdout, "\n")
	record := regexp.MustCompile(`(?m)^  - id(?:.|\n)*label.*\n`).FindString(stdout)
	file := filepath.Join(t.TempDir(), "keys.yaml")
	expect.NoError(t, "write the file", os.WriteFile(file, []byte("keys:\n"+record), 0o600))
	set, err := access.ReadFile(file)
	if err != nil || len(set.Keys) != 1 || set.Keys[0].Label != `the "orders" service` || set.Keys[0].NotAfter.IsZero() || set.Keys[0].Burst != 7 {
		t.Fatalf("the file of keys: got %+v, %v, want one key with the label, an end and a burst of 7, of what was printed:\n%s", set, err, stdout)
	}
	p := serve(t, "--access", file)
	expect.Equal(t, "access in the banner", p.banner.Access, "keys and certificates of "+file)
	for path, status := range map[string]int{"/incr/orders:1": 200, "/incr/bills": 200, "/incr/bills:1": 403} {
		p.answers(status, "POST", path, "", "Authorization: Bearer "+key)
	}
	expect.Equal(t, "code without a key", p.do("POST", "/incr/orders:1", "").code(), api.Unauthorized)
	execute(t, nil, "key", "ls", "--access", file).exits(done).prints("orders:* bills", "file").conceals(set.Keys[0].Hash.String())
}

// As in answers, and in what key ls prints.
func TestTimesOfAKeyHaveThreeDigits(t *testing.T) {
	text := execute(t, nil, "key", "new", "--json", "--principal", "orders", "--ttl", "90d").exits(done).stdout
	expect.Equal(t, "whether the end has three digits", regexp.MustCompile(`"not_after":"[^"]+:\d\d\.000Z"`).MatchString(text), true)
}

func TestKeyOnALineOfTheEnvironment(t *testing.T) {
	stdout := execute(t, nil, "key", "new", "--principal", "ops", "--role", "read").exits(done).stdout
	key, _, _ := strings.Cut(stdout, "\n")
	line := regexp.MustCompile(`(?m)^[a-z0-9]+:read:ops::[0-9a-f]{64}$`).FindString(stdout)
	t.Setenv("COATCHECK_ACCESS_KEYS", line)
	p := serve(t)
	p.answers(http.StatusOK, "GET", "/counter", "", "X-API-Key: "+key)
	expect.Equal(t, "code of POST /incr/k with a key that may read", p.do("POST", "/incr/k", "", "X-API-Key: "+key).code(), api.Forbidden)
}

// An empty element of --prefix is no key for all names: that was not asked for.
func TestEmptyElementsOfNamesAreRefused(t *testing.T) {
	for _, names := range []string{",", "a:*,,b:*", ",a:*", "a:*,", " ", " , ", "a:*, ,b:*"} {
		execute(t, nil, "key", "new", "--principal", "p", "--prefix", names).exits(usage, "empty element", "prefix (--prefix)")
	}
	for names, want := range map[string]access.Names{"": nil, "*": {"*"}, "a:*, b": {"a:*", "b"}, "a:* b": {"a:*", "b"}} {
		expect.Equal(t, "names of a key with --prefix "+names, newKey(t, "--principal", "p", "--prefix", names).Record.Names, want)
	}
	execute(t, nil, "key", "add", "a:use:p:a:*||b:*:"+anyHash, "--redis", "redis://127.0.0.1:1").exits(usage, "prefixes: entry 2")
	for _, records := range []string{",", " , "} {
		execute(t, map[string]string{"COATCHECK_ACCESS_KEYS": records}, "config", "check").exits(usage, "there is no record in it")
	}
}

// Keys in Redis: made, listed, removed, and every service on it follows.
func TestKeysInRedis(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	blue := newKey(t, "--principal", "orders", "--redis", redis.URL())
	expect.Equal(t, "whether key new --redis has stored its key", blue.Stored, true)
	p := serve(t, "--redis", redis.URL(), "--access-store")
	incr := func(key string) int { return p.do("POST", "/incr/k", "", "X-API-Key: "+key).status }
	expect.Equal(t, "status with the stored key", incr(blue.Key), 200)
	green := newKey(t, "--principal", "orders")
	line, _ := green.Record.Line()
	for range 2 {
		expect.Equal(t, "key add", execute(t, nil, "key", "add", line, "--redis", redis.URL()).exits(done).stdout, green.Record.ID+"\n")
	}
	execute(t, nil, "key", "add", strings.Replace(line, ":use:", ":read:", 1), "--redis", redis.URL()).exits(failed, "already")
	eventually(t, "the added key is good", func() bool { return incr(green.Key) == 200 })
	var listed map[string][]listedKey
	execute(t, nil, "key", "ls", "--json", "--redis", redis.URL()).exits(done).into(&listed)
	list := listed["keys"]
	if len(list) != 2 || list[0].Source != "redis" || list[0].Added.IsZero() {
		t.Errorf("key ls: got %+v, want two keys, the first of them of redis and with its moment", list)
	}
	removed := execute(t, nil, "key", "rm", blue.Record.ID, "--redis", redis.URL()).exits(done)
	expect.Equal(t, "key rm", removed.stdout, "removed "+blue.Record.ID+"\n")
	execute(t, nil, "key", "rm", blue.Record.ID, "--redis", redis.URL()).exits(failed, "no key")
	eventually(t, "the removed key is refused", func() bool { return incr(blue.Key) == 401 })
	expect.Equal(t, "status with the key that stays", incr(green.Key), 200)
	p.endsWell()
	lacks(t, "the log", p.stderr.String(), blue.Key, green.Record.Hash.String())
}

// The file and the environment of a service have a prefix, a rate and a burst of its own: they say
// where keys are kept, and nothing of a key.
func TestKeysAreKeptUnderThePrefixOfTheirService(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	path := file(t, "redis: "+redis.URL()+"\nprefix: 'app:'\nrate: 7/s\nburst: 9\naccess-store: true\n")
	made := newKey(t, "--principal", "orders", "--prefix", "orders:*", "--config", path)
	expect.Equal(t, "names, rate and burst of the key", []any{made.Record.Names, made.Record.Rate.N, made.Record.Burst}, []any{access.Names{"orders:*"}, access.Rate{}.N, 0})
	execute(t, nil, "key", "ls", "--config", path).exits(done).prints(made.Record.ID)
	serve(t, "--config", path).answers(200, "POST", "/incr/orders:1", "", "X-API-Key: "+made.Key)
	env := map[string]string{"COATCHECK_PREFIX": "app:", "COATCHECK_RATE": "7/s", "COATCHECK_BURST": "9"}
	var of madeKey
	execute(t, env, "key", "new", "--json", "--principal", "orders").exits(done).into(&of)
	expect.Equal(t, "names of a key where the environment has a prefix", of.Record.Names, nil)
	expect.Equal(t, "rate of a key where the environment has one", of.Record.Rate, access.Rate{})
}

func TestKeyHashReadsStandardInput(t *testing.T) {
	made := newKey(t, "--principal", "orders")
	for input, want := range map[string]int{made.Key + "\n": done, made.Key: done, " " + made.Key + " \nmore": done, "": usage, "junk\n": usage, made.Key + "x\n": usage} {
		var stdout, stderr bytes.Buffer
		p := &program{getenv: func(string) string { return "" }, stdout: &stdout, stderr: &stderr}
		root := p.command()
		root.SetArgs([]string{"key", "hash"})
		root.SetIn(strings.NewReader(input))
		root.SetOut(&stdout)
		root.SetErr(&stderr)
		err := root.ExecuteContext(t.Context())
		if want != done {
			if err == nil {
				t.Errorf("key hash of %q: got %q, want an error", input, stdout.String())
			} else {
				lacks(t, "error of key hash", err.Error(), made.Key)
			}
			continue
		}
		expect.Error(t, fmt.Sprintf("key hash of %q", input), err, nil)
		expect.Equal(t, fmt.Sprintf("key hash of %q", input), stdout.String(), made.Record.ID+" "+made.Record.Hash.String()+"\n")
	}
}

// A terminal from which nothing comes: the process has caught Ctrl-C, so the read has to be left.
func TestCtrlCEndsTheReadingOfStandardInput(t *testing.T) {
	for _, args := range [][]string{{"key", "hash"}, {"operation", "settle", strings.Repeat("A", 32), "--completed", "--body-file", "-"}} {
		terminal, typing := io.Pipe()
		p := &program{getenv: func(string) string { return "" }, stdout: io.Discard, stderr: io.Discard}
		root := p.command()
		root.SetArgs(args)
		root.SetIn(terminal)
		ctx, end := context.WithCancelCause(t.Context())
		end(errors.New("Ctrl-C"))
		expect.Contains(t, fmt.Sprintf("error of %q", args), fmt.Sprint(root.ExecuteContext(ctx)), "Ctrl-C")
		_ = typing.Close()
	}
}

func TestKeyCommandsRefuseWhatCanNotBeMeant(t *testing.T) {
	for _, args := range [][]string{
		{"new"}, {"new", "--principal", "a b"}, {"new", "--principal", "a", "--role", "owner"}, {"new", "--principal", "a", "--prefix", "a**"}, {"new", "--principal", "a", "--ttl", "0d"},
		{"new", "--principal", "a", "--burst", "3"}, {"new", "--principal", "a", "--rate", "3"}, {"add"}, {"add", "junk", "--redis", "redis://127.0.0.1:1"}, {"rm"}, {"rm", "a"}, {"ls", "--access", "none.yaml"},
	} {
		execute(t, nil, append([]string{"key"}, args...)...).exits(usage)
	}
}

// A command shows its key to the service, and never anywhere else.
func TestCommandsShowTheirKeyToTheService(t *testing.T) {
	made := newKey(t, "--principal", "orders", "--prefix", "orders:*")
	line, _ := made.Record.Line()
	t.Setenv("COATCHECK_ACCESS_KEYS", line)
	p := serve(t)
	env := map[string]string{"COATCHECK_SERVER": p.banner.URL}
	execute(t, env, "incr", "orders:1").exits(failed, "does not know who is asking")
	env["COATCHECK_API_KEY"] = made.Key
	for _, args := range [][]string{{"incr", "orders:1"}, {"token", "issue", "--scope", "orders:pay"}, {"counter", "get", "orders:1"}, {"lock", "ls"}, {"worker", "ls"}} {
		execute(t, env, args...).exits(done)
	}
	secret := strings.SplitN(made.Key, "_", 3)[2]
	execute(t, env, "incr", "bills:1").exits(failed, "does not allow").conceals(secret)
	env["COATCHECK_API_KEY"] = made.Key + "x"
	execute(t, env, "incr", "orders:1").exits(failed).conceals(secret)
	p.endsWell()
	lacks(t, "the log", p.stderr.String(), secret)
}

// Of keys and their records only ids are shown.
func TestSettingsOfAccessAreShownWithoutSecrets(t *testing.T) {
	line := "blue:use:orders::" + strings.Repeat("0f", 32)
	execute(t, map[string]string{"COATCHECK_ACCESS_KEYS": line}, "config", "print").exits(done).prints(`access-keys: "blue:…"`).conceals("0f0f")
	made := newKey(t, "--principal", "orders")
	execute(t, map[string]string{"COATCHECK_ACCESS_KEYS": made.Key}, "config", "check").exits(usage).conceals(made.Key)
	expect.Equal(t, "a hidden setting", shown(config.Hidden(config.Text("api-key", made.Key, "key", "", new(string)))).Value, "(set)")
}
