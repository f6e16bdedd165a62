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
	"time"

	"github.com/coatcheck/coatcheck/internal/redisprobe"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
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
	delete(called, "CLUSTER") // of clusters alone
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
	standalone, cluster := redisprobe.Rights(redisstore.ModeStandalone, "coatcheck:"), redisprobe.Rights(redisstore.ModeCluster, "coatcheck:")
	more := slices.DeleteFunc(cluster, func(right string) bool { return slices.Contains(standalone, right) })
	for _, line := range []string{user + strings.Join(standalone, " "), strings.Join(more, " "), user + strings.Join(redisprobe.SentinelRights(), " ")} {
		expect.Contains(t, "docs/operations.md", string(page), "\n"+line+"\n")
	}
}

// A right that is missing is named, whether or not the user may ask Redis about rights.
func TestUnfitNamesEachMissingRight(t *testing.T) {
	t.Parallel()
	server, cluster := redistest.Start(t), redistest.StartCluster(t, 3, 0)
	for mode, at := range map[redisstore.Mode]interface {
		URL() string
		Nodes() []*redistest.Server
	}{redisstore.ModeStandalone: server, redisstore.ModeCluster: cluster} {
		rights := redisprobe.Rights(mode, "coatcheck:")
		all := redisstore.Config{URL: redistest.MakeUser(t, at.URL(), "all", rights, at.Nodes()...), Ack: 1}
		expect.Equal(t, "what is unfit for a user that has all rights at a "+string(mode), unfit(t, all), "")
		for _, right := range rights {
			if !strings.HasPrefix(right, "+") || right == "+select" {
				continue
			}
			without := slices.DeleteFunc(slices.Clone(rights), func(other string) bool { return other == right })
			some := redisstore.Config{URL: strings.Replace(at.URL(), "://", "://some:word@", 1), Ack: 1, Timeout: time.Minute}
			for _, node := range at.Nodes() {
				do(t, node, append([]any{"ACL", "SETUSER", "some", "reset", "on", ">word"}, words(without)...)...)
			}
			said := unfit(t, some)
			if spared := []string{"+info", "+publish", "+subscribe", "+unsubscribe"}; slices.Contains(spared, right) {
				expect.Equal(t, "what is unfit for a user without "+right, said, "")
				refused(t, some, right)
				continue
			}
			expect.Contains(t, "what is unfit for a user without "+right, said, "does not let the user run "+strings.ToUpper(right[1:])+" ",
				"+"+right[1:]+",")
		}
	}
}

// refused expects that what a store does without is named, with the rule that grants it.
func refused(t *testing.T, config redisstore.Config, right string) {
	t.Helper()
	found, err := redisprobe.Refused(t.Context(), storetest.Open(t, config))
	expect.Error(t, "Refused", err, nil)
	if right == "+unsubscribe" { // a connection that listens is closed
		expect.Equal(t, "lines without "+right, len(found), 0)
		return
	}
	if len(found) == 0 {
		t.Fatalf("a user without %s: got no line, want one for each master", right)
	}
	for _, line := range found {
		expect.Contains(t, "a user without "+right, line, "does not let the user run "+strings.ToUpper(right[1:])+":",
			"(ACL SETUSER some &coatcheck:* "+right+")")
	}
}

func words(rules []string) (words []any) {
	for _, rule := range rules {
		words = append(words, rule)
	}
	return words
}

// A user with the rights can look at everything but settings.
func TestInspectNeedsNoMoreThanTheRights(t *testing.T) {
	t.Parallel()
	set := redistest.StartSentinel(t, 1)
	url := redistest.MakeUser(t, set.URL(), "service", append(redisprobe.Rights(redisstore.ModeSentinel, "coatcheck:"), "+config|get"), append(set.Replicas(), set.Master())...)
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
