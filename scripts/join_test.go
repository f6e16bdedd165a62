package scripts_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/scripts"
)

var definition = regexp.MustCompile(`\blocal (?:function ([a-z_]+)|([a-z_]+) = function\b)`)

// uncalled are the functions of a text that nothing else in it names.
func uncalled(source string) (names []string) {
	code := comment.ReplaceAllString(source, "")
	times := map[string]int{}
	for _, word := range wordOfALocal.FindAllString(code, -1) {
		times[word]++
	}
	for _, found := range definition.FindAllStringSubmatch(code, -1) {
		if name := found[1] + found[2]; times[name] < 2 {
			names = append(names, name)
		}
	}
	return names
}

func TestNoScriptHasAFunctionThatItNeverCalls(t *testing.T) {
	for _, script := range all {
		if names := uncalled(script.Text().Source); len(names) > 0 {
			t.Errorf("%s: nothing calls %s", script.Name, strings.Join(names, ", "))
		}
	}
}

func TestUncalledFunctionsAreFound(t *testing.T) {
	names := uncalled("local function used()\nend\nlocal unused = function()\nend\nlocal function idle()\nend\nused() -- idle\n")
	if want := []string{"unused", "idle"}; !slices.Equal(names, want) {
		t.Errorf("got %q, want %q", names, want)
	}
}

// A library part runs nothing by itself: a statement that defines no name would be left out.
func TestLibraryPartsOnlyDefine(t *testing.T) {
	for part, text := range readAll(t, "lib/*.lua") {
		for line := range strings.Lines(parse(part, text).code) {
			if regexp.MustCompile(`^[^\s})]`).MatchString(line) && !strings.HasPrefix(line, "local ") && !strings.HasPrefix(line, "end") {
				t.Errorf("lib/%s.lua: %q stands alone", part, strings.TrimSpace(line))
			}
		}
	}
}

// A part's definitions stand between the statements of the script, so that a name that both define
// would mean something else below.
func TestNoScriptRedefinesANameOfItsParts(t *testing.T) {
	of := func(name, text string) (names []string) {
		for _, found := range regexp.MustCompile(`(?m)^local (?:function )?([a-z_0-9, ]+)`).FindAllStringSubmatch(parse(name, text).code, -1) {
			names = append(names, wordOfALocal.FindAllString(found[1], -1)...)
		}
		return names
	}
	parts := readAll(t, "lib/*.lua")
	for script, text := range readAll(t, "*.lua") {
		known := of(script, text)
		for _, part := range parse(script, text).parts() {
			for _, name := range of(part, parts[part]) {
				if slices.Contains(known, name) {
					t.Errorf("%s.lua: lib/%s.lua defines %s again", script, part, name)
				}
				known = append(known, name)
			}
		}
	}
}

// What a call that ends early does not need stands below its end.
func TestAFreeLockIsTakenBeforeTheQueueIsDefined(t *testing.T) {
	for script, end := range map[*scripts.Script]string{
		scripts.LockEnter: "return {'granted', now_us_text", scripts.LockLeave: "return {'free'}",
	} {
		early, _, found := strings.Cut(script.Text().Source, end)
		if names := definition.FindAllString(early, -1); !found || len(names) > 1 {
			t.Errorf("%s: before %q it defines %q, want refuse_newer at most", script.Name, end, names)
		}
	}
}
