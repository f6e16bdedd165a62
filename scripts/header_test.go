package scripts_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

func TestEveryScriptKeepsWhatItsHeaderSays(t *testing.T) {
	parts := readAll(t, "lib/*.lua")
	for name, text := range readAll(t, "*.lua") {
		for _, fault := range check(name, text, parts) {
			t.Errorf("%s.lua: %s", name, fault)
		}
	}
}

func TestEveryLibraryPartIsDescribedAndUsed(t *testing.T) {
	texts := readAll(t, "*.lua")
	for part, text := range readAll(t, "lib/*.lua") {
		if !strings.HasPrefix(text, "-- "+part+": ") {
			t.Errorf("lib/%s.lua: the first line is not `-- %s: …`", part, part)
		}
		used := false
		for name, script := range texts {
			used = used || slices.Contains(parse(name, script).parts(), part)
		}
		if !used {
			t.Errorf("lib/%s.lua: no script uses it", part)
		}
	}
}

func TestEveryFileIsLoadedOnce(t *testing.T) {
	source, err := os.ReadFile("scripts.go")
	expect.NoError(t, "os.ReadFile", err)
	loaded := map[string]int{}
	for _, found := range regexp.MustCompile(`= load\("([a-z_]+)"\)`).FindAllStringSubmatch(string(source), -1) {
		loaded[found[1]]++
	}
	for name := range readAll(t, "*.lua") {
		expect.Equal(t, name+".lua: how often it is loaded", loaded[name], 1)
		delete(loaded, name)
	}
	for name := range loaded {
		t.Errorf("%s is loaded and has no file", name)
	}
}

func TestReadsIsWhatTheHeaderSaysOfTheEffect(t *testing.T) {
	texts := readAll(t, "*.lua")
	for _, script := range all {
		if none := parse(script.Name, texts[script.Name]).header["Effect"] == "none"; script.Text().Reads != none {
			t.Errorf("%s: Reads is %v, Effect none is %v", script.Name, script.Text().Reads, none)
		}
		delete(texts, script.Name)
	}
	for name := range texts {
		t.Errorf("the tests do not know %s", name)
	}
}

// sound is a script without fault, to be broken in one way at a time.
const sound = `-- sound: adds a guest.
-- It has a second line that belongs to no section.
-- Uses   clock room
-- KEYS   [1] the list  [2] the count, only looked at when ARGV[2] > 0
-- ARGV   [1] the guest
--        [2] how many
-- Reply  {'ok', count} | {'full'}
-- Units  none
-- Effect writes on ok only
local list, guest = KEYS[1], ARGV[1]
local count = redis.call('GET', KEYS[2]) -- not KEYS[7]
if not room(list, ARGV[2]) then
  return {'full'}
end
redis.call('HSET', list, guest, now)
return {'ok', count}
`

var soundParts = map[string]string{
	"clock": "-- clock: the time.\nlocal now = redis.call('TIME')[1]\n",
	"luck":  "-- luck: whether there is any, of guests or not.\nlocal function room(key, most)\n  return ARGV[3] and most ~= key\nend\n",
	"room":  "-- room: whether there is any.\nlocal function room(key, most)\n  return redis.call('HLEN', key) < tonumber(most)\nend\n",
}

func TestHeaderCheckRefusesEveryFault(t *testing.T) {
	if faults := check("sound", sound, soundParts); len(faults) > 0 {
		t.Fatalf("the sound script has faults: %v", faults)
	}
	for _, broken := range []struct{ name, old, new, fault string }{
		{"no title", "-- sound: adds a guest.", "-- adds a guest.", "the first line is not"},
		{"title of another", "-- sound:", "-- sounds:", "the first line is not"},
		{"empty title", "-- sound: adds a guest.", "-- sound: ", "the first line is not"},
		{"no Uses", "-- Uses   clock room\n", "", "the header's sections are"},
		{"no KEYS", "-- KEYS   [1] the list  [2] the count, only looked at when ARGV[2] > 0\n", "", "the header's sections are"},
		{"no ARGV", "-- ARGV   [1] the guest\n", "", "the header's sections are"},
		{"no Reply", "-- Reply  {'ok', count} | {'full'}\n", "", "the header's sections are"},
		{"no Units", "-- Units  none\n", "", "the header's sections are"},
		{"no Effect", "-- Effect writes on ok only\n", "", "the header's sections are"},
		{"empty section", "-- Units  none\n", "-- Units\n", "the header's sections are"},
		{"sections in another order", "-- Units  none\n-- Effect writes on ok only\n", "-- Effect writes on ok only\n-- Units  none\n", "the header's sections are"},
		{"section after the code", "-- Units  none\n", "local x = 1\n-- Units  none\n", "the header's sections are"},
		{"part that is not there", "clock room", "clock room door", "there is no lib/door.lua"},
		{"part that is not used", "redis.call('HSET', list, guest, now)", "redis.call('HSET', list, guest, 1)", "nothing of lib/clock.lua is used"},
		{"key not documented", "redis.call('GET', KEYS[2])", "redis.call('GET', KEYS[3])", "KEYS[3] is used and not documented"},
		{"key not used", "redis.call('GET', KEYS[2])", "redis.call('GET', KEYS[1])", "KEYS[2] is documented and not used"},
		{"argument not documented", "room(list, ARGV[2])", "room(list, ARGV[2] + ARGV[4])", "ARGV[4] is used and not documented"},
		{"argument not used", "room(list, ARGV[2])", "room(list, 10)", "ARGV[2] is documented and not used"},
		{"argument mentioned elsewhere only", "--        [2] how many", "--        ARGV[2] is how many", "ARGV[2] is used and not documented"},
		{"argument of a part not documented", "clock room", "clock luck", "ARGV[3] is used and not documented"},
		{"keys by a loop", "redis.call('GET', KEYS[2])", "redis.call('GET', KEYS[#KEYS])", "KEYS is used as"},
		{"all arguments", "room(list, ARGV[2])", "room(list, unpack(ARGV))", "ARGV is used as"},
		{"reply not listed", "return {'full'}", "return {'closed'}", "reply closed is given and not listed"},
		{"reply never given", "| {'full'}", "| {'full'} | {'closed'}", "reply closed is listed and never given"},
		{"key made of strings", "redis.call('HSET', list, guest, now)", "redis.call('HSET', list .. guest, guest, now)", "which need not be one of KEYS"},
		{"key in quotes", "redis.call('HSET', list, guest, now)", "redis.call('HSET', 'list', guest, now)", "which need not be one of KEYS"},
		{"key out of an argument", "redis.call('HSET', list, guest, now)", "redis.call('HSET', guest, guest, now)", "which need not be one of KEYS"},
		{"key by pcall", "redis.call('HSET', list, guest, now)", "redis.pcall('HSET', 'x' .. list, guest, now)", "which need not be one of KEYS"},
		{"key that is changed", "redis.call('HSET', list, guest, now)", "list = list .. guest\nredis.call('HSET', list, guest, now)", "the key list is assigned to"},
		{"local that is a key only in part", "local list, guest = KEYS[1], ARGV[1]", "local list, guest = KEYS[1] .. ':x', ARGV[1]", "which need not be one of KEYS"},
		{"command by a name", "redis.call('HSET', list", "local hset = 'HSET'\nredis.call(hset, list", "is not written out"},
		{"command on no list", "redis.call('HSET', list", "redis.call('XADD', list", "XADD is on neither list"},
		{"writes and says none", "Effect writes on ok only", "Effect none", "Effect none, and it calls a command that writes"},
		{"says that it writes", "redis.call('HSET', list, guest, now)", "redis.call('HGET', list, guest, now)", "and it calls no command that writes"},
	} {
		t.Run(broken.name, func(t *testing.T) {
			text := strings.Replace(sound, broken.old, broken.new, 1)
			if text == sound {
				t.Fatal("nothing was broken")
			}
			faults := check("sound", text, soundParts)
			if !slices.ContainsFunc(faults, func(fault string) bool { return strings.Contains(fault, broken.fault) }) {
				t.Errorf("got the faults %q, want one with %q", faults, broken.fault)
			}
		})
	}
}

func TestHeaderCheckSeesWritesInsideAPart(t *testing.T) {
	parts := map[string]string{"clock": soundParts["clock"], "room": strings.Replace(soundParts["room"], "HLEN", "DEL", 1)}
	text := strings.Replace(strings.Replace(sound, "'HSET'", "'HGET'", 1), "Effect writes on ok only", "Effect none", 1)
	if faults := check("sound", text, parts); len(faults) != 1 || !strings.Contains(faults[0], "Effect none") {
		t.Errorf("got the faults %q, want one about the effect", faults)
	}
}
