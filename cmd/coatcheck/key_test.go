package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/access"
	"github.com/coatcheck/coatcheck/internal/redistest"
	"github.com/coatcheck/coatcheck/internal/wire"
)

// newKey makes a key with the command and returns it, and what it is worth.
func newKey(t *testing.T, args ...string) madeKey {
	t.Helper()
	code, stdout, stderr := coatcheck(t, nil, append([]string{"key", "new", "--json"}, args...)...)
	var made madeKey
	if code != done || json.Unmarshal([]byte(stdout), &made) != nil {
		t.Fatalf("%d %s %s", code, stdout, stderr)
	}
	return made
}

// What is printed for people goes into a file, and the key is good at once.
func TestNewKeyGoesIntoTheFile(t *testing.T) {
	code, stdout, stderr := coatcheck(t, nil, "key", "new", "--principal", "orders", "--role", "admin", "--prefix", "orders:*,bills", "--ttl", "90d", "--rate", "100/s", "--burst", "7", "--label", `the "orders" service`)
	if code != done {
		t.Fatalf("%d %s", code, stderr)
	}
	key, _, _ := strings.Cut(stdout, "\n")
	record := regexp.MustCompile(`(?m)^  - id(?:.|\n)*label.*\n`).FindString(stdout)
	file := filepath.Join(t.TempDir(), "keys.yaml")
	if err := os.WriteFile(file, []byte("keys:\n"+record), 0o600); err != nil {
		t.Fatal(err)
	}
	set, _, err := access.ReadFile(file)
	if err != nil || len(set.Keys) != 1 || set.Keys[0].Label != `the "orders" service` || set.Keys[0].NotAfter.IsZero() || set.Keys[0].Burst != 7 {
		t.Fatalf("%+v, %v in\n%s", set, err, stdout)
	}
	p := serve(t, "--access", file)
	if p.banner.Access != "keys and certificates of "+file {
		t.Errorf("%+v", p.banner)
	}
	for path, status := range map[string]int{"/incr/orders:1": 200, "/incr/bills": 200, "/incr/bills:1": 403} {
		if a := p.do("POST", path, "", "Authorization: Bearer "+key); a.status != status {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
	if a := p.do("POST", "/incr/orders:1", ""); a.code() != wire.Unauthorized {
		t.Errorf("%d %s", a.status, a.body)
	}
	if code, stdout, _ := coatcheck(t, nil, "key", "ls", "--access", file); code != done || !strings.Contains(stdout, "orders:* bills") || !strings.Contains(stdout, "file") || strings.Contains(stdout, set.Keys[0].Hash.String()) {
		t.Errorf("%d %s", code, stdout)
	}
}

func TestKeyOnALineOfTheEnvironment(t *testing.T) {
	code, stdout, stderr := coatcheck(t, nil, "key", "new", "--principal", "ops", "--role", "read")
	if code != done {
		t.Fatalf("%d %s", code, stderr)
	}
	key, _, _ := strings.Cut(stdout, "\n")
	line := regexp.MustCompile(`(?m)^[a-z0-9]+:read:ops::[0-9a-f]{64}$`).FindString(stdout)
	t.Setenv("COATCHECK_ACCESS_KEYS", line)
	p := serve(t)
	if a := p.do("GET", "/counter", "", "X-API-Key: "+key); a.status != http.StatusOK {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := p.do("POST", "/incr/k", "", "X-API-Key: "+key); a.code() != wire.Forbidden {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// Keys in Redis: made, listed, removed, and every service on it follows.
func TestKeysInRedis(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	blue := newKey(t, "--principal", "orders", "--redis", redis.URL())
	if !blue.Stored {
		t.Errorf("%+v", blue)
	}
	p := serve(t, "--redis", redis.URL(), "--access-store")
	incr := func(key string) int { return p.do("POST", "/incr/k", "", "X-API-Key: "+key).status }
	if status := incr(blue.Key); status != 200 {
		t.Errorf("%d", status)
	}
	green := newKey(t, "--principal", "orders")
	line, _ := green.Record.Line()
	for range 2 {
		if code, stdout, stderr := coatcheck(t, nil, "key", "add", line, "--redis", redis.URL()); code != done || stdout != green.Record.ID+"\n" {
			t.Errorf("%d %s %s", code, stdout, stderr)
		}
	}
	if code, _, stderr := coatcheck(t, nil, "key", "add", strings.Replace(line, ":use:", ":read:", 1), "--redis", redis.URL()); code != failed || !strings.Contains(stderr, "already") {
		t.Errorf("%d %s", code, stderr)
	}
	eventually(t, "the added key is good", func() bool { return incr(green.Key) == 200 })
	var list []listedKey
	_, stdout, _ := coatcheck(t, nil, "key", "ls", "--json", "--redis", redis.URL())
	if err := json.Unmarshal([]byte(stdout), &list); err != nil || len(list) != 2 || list[0].Source != "redis" || list[0].Added.IsZero() {
		t.Errorf("%s, %v", stdout, err)
	}
	if code, stdout, _ := coatcheck(t, nil, "key", "rm", blue.Record.ID, "--redis", redis.URL()); code != done || stdout != "removed "+blue.Record.ID+"\n" {
		t.Errorf("%d %s", code, stdout)
	}
	if code, _, stderr := coatcheck(t, nil, "key", "rm", blue.Record.ID, "--redis", redis.URL()); code != failed || !strings.Contains(stderr, "no key") {
		t.Errorf("%d %s", code, stderr)
	}
	eventually(t, "the removed key is refused", func() bool { return incr(blue.Key) == 401 })
	if status := incr(green.Key); status != 200 {
		t.Errorf("%d", status)
	}
	p.stop()
	if log := p.stderr.String(); strings.Contains(log, blue.Key) || strings.Contains(log, green.Record.Hash.String()) {
		t.Errorf("a key or its hash is in the log:\n%s", log)
	}
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
		if (err == nil) != (want == done) || err == nil && stdout.String() != made.Record.ID+" "+made.Record.Hash.String()+"\n" {
			t.Errorf("%q: %v %s", input, err, stdout.String())
		}
		if err != nil && strings.Contains(err.Error(), made.Key) {
			t.Errorf("the key is quoted: %v", err)
		}
	}
}

func TestKeyCommandsRefuseWhatCanNotBeMeant(t *testing.T) {
	for _, args := range [][]string{
		{"new"}, {"new", "--principal", "a b"}, {"new", "--principal", "a", "--role", "owner"}, {"new", "--principal", "a", "--prefix", "a**"}, {"new", "--principal", "a", "--ttl", "0d"},
		{"new", "--principal", "a", "--burst", "3"}, {"new", "--principal", "a", "--rate", "3"}, {"add"}, {"add", "junk", "--redis", "redis://127.0.0.1:1"}, {"rm"}, {"rm", "a"}, {"ls", "--access", "none.yaml"},
	} {
		if code, _, stderr := coatcheck(t, nil, append([]string{"key"}, args...)...); code != usage {
			t.Errorf("%v: %d %s", args, code, stderr)
		}
	}
}

// A command shows its key to the service, and never anywhere else.
func TestCommandsShowTheirKeyToTheService(t *testing.T) {
	made := newKey(t, "--principal", "orders", "--prefix", "orders:*")
	line, _ := made.Record.Line()
	t.Setenv("COATCHECK_ACCESS_KEYS", line)
	p := serve(t)
	env := map[string]string{"COATCHECK_SERVER": p.banner.URL}
	if code, _, stderr := coatcheck(t, env, "incr", "orders:1"); code != failed || !strings.Contains(stderr, "does not know who is asking") {
		t.Errorf("%d %s", code, stderr)
	}
	env["COATCHECK_API_KEY"] = made.Key
	for _, args := range [][]string{{"incr", "orders:1"}, {"token", "issue", "--scope", "orders:pay"}, {"counter", "get", "orders:1"}, {"lock", "ls"}, {"worker", "ls"}} {
		if code, _, stderr := coatcheck(t, env, args...); code != done {
			t.Errorf("%v: %d %s", args, code, stderr)
		}
	}
	code, stdout, stderr := coatcheck(t, env, "incr", "bills:1")
	if code != failed || !strings.Contains(stderr, "does not allow") {
		t.Errorf("%d %s", code, stderr)
	}
	env["COATCHECK_API_KEY"] = made.Key + "x"
	_, more, wrong := coatcheck(t, env, "incr", "orders:1")
	p.stop()
	secret := strings.SplitN(made.Key, "_", 3)[2]
	for what, text := range map[string]string{"standard output": stdout + more, "standard error": stderr + wrong, "the log": p.stderr.String()} {
		if strings.Contains(text, secret) {
			t.Errorf("the key is in %s: %s", what, text)
		}
	}
}

// Of keys and their records only ids are shown.
func TestSettingsOfAccessAreShownWithoutSecrets(t *testing.T) {
	line := "blue:use:orders::" + strings.Repeat("0f", 32)
	code, stdout, stderr := coatcheck(t, map[string]string{"COATCHECK_ACCESS_KEYS": line}, "config", "print")
	if code != done || !strings.Contains(stdout, `access-keys: "blue:…"`) || strings.Contains(stdout, "0f0f") {
		t.Errorf("%d %s %s", code, stdout, stderr)
	}
	made := newKey(t, "--principal", "orders")
	code, stdout, stderr = coatcheck(t, map[string]string{"COATCHECK_ACCESS_KEYS": made.Key}, "config", "check")
	if code != usage || strings.Contains(stdout+stderr, made.Key) {
		t.Errorf("%d %s %s", code, stdout, stderr)
	}
	if s := shown(hidden(text("api-key", made.Key, "key", "", new(string)))); s.Value != "(set)" {
		t.Errorf("%+v", s)
	}
}
