package redisprobe_test

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/internal/expect"
	"github.com/coatcheck/coatcheck/internal/redisprobe"
	"github.com/coatcheck/coatcheck/internal/redistest"
	"github.com/coatcheck/coatcheck/redisstore"
)

// besideScripts are the commands that a store sends itself.
var besideScripts = []string{"EVAL", "EVALSHA", "PING", "SUBSCRIBE", "UNSUBSCRIBE", "WAIT"}

// What the rights allow is what scripts call, those of redislock included, and what a store sends.
func TestRightsAreWhatScriptsCall(t *testing.T) {
	t.Parallel()
	module, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/bsm/redislock").Output()
	expect.Error(t, "go list", err, nil)
	called := map[string]string{} // in which file
	for _, name := range besideScripts {
		called[name] = "a store"
	}
	call := regexp.MustCompile(`redis\.p?call\(\s*['"](\w+)['"]`)
	for _, files := range []string{"../../scripts/*.lua", "../../scripts/lib/*.lua", strings.TrimSpace(string(module)) + "/*.lua"} {
		found, err := filepath.Glob(files)
		if err != nil || len(found) < 4 {
			t.Fatalf("files %s: got %d, %v, want four or more", files, len(found), err)
		}
		for _, file := range found {
			text, err := os.ReadFile(file)
			expect.Error(t, "reading "+file, err, nil)
			for _, command := range call.FindAllStringSubmatch(string(text), -1) {
				called[strings.ToUpper(command[1])] = file
			}
		}
	}
	needed := redisprobe.NeededCommands()
	slices.Sort(needed)
	expect.Equal(t, "the commands that a store needs", needed, slices.Sorted(maps.Keys(called)))
}

// The page for operators has the rights as they are.
func TestOperationsPageHasTheRights(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/operations.md")
	expect.Error(t, "reading the page", err, nil)
	const user = "user coatcheck on >PASSWORD "
	standalone, cluster := redisprobe.Rights(redisstore.Standalone, "coatcheck:"), redisprobe.Rights(redisstore.Cluster, "coatcheck:")
	more := slices.DeleteFunc(cluster, func(right string) bool { return slices.Contains(standalone, right) })
	for _, line := range []string{user + strings.Join(standalone, " "), strings.Join(more, " "), user + strings.Join(redisprobe.SentinelRights(), " ")} {
		expect.Contains(t, "docs/operations.md", string(page), "\n"+line+"\n")
	}
}

// A right that is missing is named, whether or not the user may ask Redis about rights.
func TestDeniedNamesEachMissingRight(t *testing.T) {
	t.Parallel()
	servers := map[redisstore.Mode]struct {
		url   string
		nodes []*redistest.Server
	}{}
	server, cluster := redistest.Start(t), redistest.StartCluster(t, 3, 0)
	servers[redisstore.Standalone] = struct {
		url   string
		nodes []*redistest.Server
	}{server.URL(), server.Nodes()}
	servers[redisstore.Cluster] = struct {
		url   string
		nodes []*redistest.Server
	}{cluster.URL(), cluster.Nodes()}
	for mode, at := range servers {
		rights := redisprobe.Rights(mode, "coatcheck:")
		expect.Equal(t, "rights denied to a user that has all of "+string(mode), denied(t, redistest.MakeUser(t, at.url, "all", rights, at.nodes...)), nil)
		for _, right := range rights {
			// the last finds the masters
			if !strings.HasPrefix(right, "+") || right == "+select" || right == "+cluster|slots" {
				continue
			}
			without := slices.DeleteFunc(slices.Clone(rights), func(other string) bool { return other == right })
			url := strings.Replace(at.url, "://", "://some:word@", 1)
			for _, node := range at.nodes {
				do(t, node, append([]any{"ACL", "SETUSER", "some", "reset", "on", ">word"}, words(without)...)...)
			}
			expect.Equal(t, "rights denied to a user without "+right, denied(t, url), []string{strings.ToUpper(right[1:])})
		}
	}
}

func words(rules []string) (words []any) {
	for _, rule := range rules {
		words = append(words, rule)
	}
	return words
}

func denied(t *testing.T, url string) []string {
	t.Helper()
	denied, err := redisprobe.Denied(t.Context(), open(t, url))
	expect.Error(t, "Denied", err, nil)
	return denied
}

// Looking for rights changes nothing, with any rights.
func TestDeniedChangesNothing(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	expect.Equal(t, "rights denied to the default user", denied(t, server.URL()), nil)
	expect.Equal(t, "keys", do(t, server, "KEYS", "*"), any([]any{}))
	expect.Equal(t, "rights denied by the embedded store", denied(t, "embedded:"), nil)
	server.Kill()
	_, err := redisprobe.Denied(t.Context(), open(t, server.URL()))
	expect.Error(t, "a server that is down", err, redisstore.ErrUnavailable)
}

// A user with the rights can look at everything but settings.
func TestInspectNeedsNoMoreThanTheRights(t *testing.T) {
	t.Parallel()
	set := redistest.StartSentinel(t, 1)
	url := redistest.MakeUser(t, set.URL(), "service", append(redisprobe.Rights(redisstore.Sentinel, "coatcheck:"), "+config|get"), append(set.Replicas(), set.Master())...)
	redistest.MakeUser(t, set.URL(), "watcher", redisprobe.SentinelRights(), set.Sentinels()...)
	facts := inspect(t, redisstore.Config{URL: url + "?sentinel_username=watcher&sentinel_password=word", Ack: 1}, redisprobe.Options{})
	expect.MustEqual(t, "sentinels", len(facts.Sentinels), 3)
	expect.MustEqual(t, "servers", len(facts.Servers), 2)
	for _, s := range facts.Sentinels {
		expect.Equal(t, "replicas that "+s.Addr+" names", len(s.Replicas), 1)
		expect.Equal(t, "why "+s.Addr+" has no quorum", s.NoQuorum, "")
	}
	for _, s := range facts.Servers {
		expect.Equal(t, "what "+s.Addr+" denies", s.Denied, nil)
		expect.Equal(t, "how a script fails at "+s.Addr, s.ScriptFails, "")
		expect.Equal(t, "why the settings of "+s.Addr+" are not seen", s.ConfigUnseen, "")
	}
	for _, sentinel := range set.Sentinels() {
		do(t, sentinel, "ACL", "SETUSER", "blind", "on", ">word", "+ping", "+sentinel|get-master-addr-by-name")
	}
	facts = inspect(t, redisstore.Config{URL: url + "?sentinel_username=blind&sentinel_password=word"}, redisprobe.Options{})
	want := []string{"INFO", "SUBSCRIBE", "UNSUBSCRIBE", "SENTINEL|SENTINELS", "SENTINEL|MASTER", "SENTINEL|REPLICAS", "SENTINEL|CKQUORUM"}
	expect.Equal(t, "what a sentinel denies", facts.Sentinels[0].Denied, want)
	if len(facts.Servers) == 0 || !facts.Servers[0].Master {
		t.Errorf("servers that blind sentinels lead to: got %+v, want the master", facts.Servers)
	}
}
