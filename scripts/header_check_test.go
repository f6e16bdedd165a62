package scripts_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/scripts"
)

// sections are what a header tells, in this order, below the line that says what the script is for.
var sections = []string{"Uses", "KEYS", "ARGV", "Reply", "Units", "Effect"}

// reading and writing are the commands that scripts may call, by whether they can change data;
// keyless need no key.
var (
	reading = words("CLUSTER EXISTS GET GETRANGE HEXISTS HGET HGETALL HLEN HMGET INFO LLEN LRANGE PTTL SCARD SISMEMBER STRLEN TIME TTL TYPE ZCARD ZCOUNT ZRANGE ZRANGEBYLEX ZRANGEBYSCORE ZRANK ZSCORE")
	writing = words("APPEND DECR DECRBY DEL EXPIRE GETDEL GETSET HDEL HINCRBY HMSET HSET HSETNX INCR INCRBY LPOP LPUSH LREM LTRIM MSET PERSIST PEXPIRE PEXPIREAT " +
		"PUBLISH RENAME RPOP RPUSH SADD SET SETEX SETNX SREM UNLINK ZADD ZINCRBY ZPOPMIN ZREM ZREMRANGEBYRANK ZREMRANGEBYSCORE")
	keyless = words("CLUSTER INFO TIME")
)

func words(text string) map[string]bool {
	set := map[string]bool{}
	for word := range strings.FieldsSeq(text) {
		set[word] = true
	}
	return set
}

// lua is one file, taken apart.
type lua struct {
	name   string
	title  string            // the first line
	header map[string]string // by section
	order  []string          // the sections as they came
	code   string            // without comments
}

var (
	sectionLine  = regexp.MustCompile(`^-- ([A-Z][A-Za-z]+) +(\S.*)$`)
	comment      = regexp.MustCompile(`(?m)--.*$`)
	documented   = regexp.MustCompile(`(?:^|[^A-Z])\[(\d+)\]`)
	calls        = regexp.MustCompile(`redis\.p?call\(([^,)]*)(?:, *([^,)]*))?`)
	quotedName   = regexp.MustCompile(`^'([A-Z]+)'$`)
	element      = regexp.MustCompile(`^KEYS\[\d+\]$`)
	locals       = regexp.MustCompile(`(?m)^ *local ([a-z_, ]+) = (.*)$`)
	functions    = regexp.MustCompile(`(?m)^ *local function ([a-z_]+)\(([a-z_, ]*)\)`)
	outcomeWord  = regexp.MustCompile(`\{'([a-z-]+)'`)
	wordOfALocal = regexp.MustCompile(`[a-z_]+`)
)

// parse splits a file into header and code. A line of the header that starts no section continues
// the one before.
func parse(name, text string) lua {
	file := lua{name: name, header: map[string]string{}}
	lines := strings.Split(text, "\n")
	file.title = lines[0]
	body := 1
	for ; body < len(lines) && strings.HasPrefix(lines[body], "--"); body++ {
		if found := sectionLine.FindStringSubmatch(lines[body]); found != nil && slices.Contains(sections, found[1]) {
			file.order = append(file.order, found[1])
			file.header[found[1]] = found[2]
		} else if len(file.order) > 0 {
			file.header[file.order[len(file.order)-1]] += "\n" + strings.TrimPrefix(lines[body], "--")
		}
	}
	file.code = comment.ReplaceAllString(strings.Join(lines[body:], "\n"), "")
	return file
}

// check tells every fault of a script's file. parts are the texts of the library files by their
// names.
func check(name, text string, parts map[string]string) (faults []string) {
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	file := parse(name, text)
	if !regexp.MustCompile(`^-- ` + name + `: \S`).MatchString(file.title) {
		fault("the first line is not `-- %s: …`", name)
	}
	if !slices.Equal(file.order, sections) {
		fault("the header's sections are %v, want %v", file.order, sections)
	}
	used := file.parts()
	for _, part := range used {
		if parts[part] == "" {
			fault("there is no lib/%s.lua", part)
		} else if !file.needs(part, used, parts) {
			fault("nothing of lib/%s.lua is used", part)
		}
	}
	code := file.code
	for _, part := range used {
		code += "\n" + parse(part, parts[part]).code
	}
	faults = append(faults, file.checkIndexes("KEYS", code)...)
	faults = append(faults, file.checkIndexes("ARGV", code)...)
	faults = append(faults, file.checkReplies()...)
	faults = append(faults, checkCalls(code)...)
	return append(faults, checkEffect(file.header["Effect"], code)...)
}

func (f lua) parts() []string {
	if f.header["Uses"] == "none" {
		return nil
	}
	return strings.Fields(f.header["Uses"])
}

// needs reports whether the script, or another part that it names, uses something that a part
// defines.
func (f lua) needs(part string, used []string, parts map[string]string) bool {
	text := f.code
	for _, other := range used {
		if other != part {
			text += "\n" + parse(other, parts[other]).code
		}
	}
	var defined []string
	own := parse(part, parts[part]).code
	for _, found := range functions.FindAllStringSubmatch(own, -1) {
		defined = append(defined, found[1])
	}
	for _, found := range regexp.MustCompile(`(?m)^local ([a-z_, ]+) =`).FindAllStringSubmatch(own, -1) {
		defined = append(defined, wordOfALocal.FindAllString(found[1], -1)...)
	}
	return slices.ContainsFunc(defined, func(name string) bool { return regexp.MustCompile(`\b` + name + `\b`).MatchString(text) })
}

// checkIndexes compares what the header documents of KEYS or ARGV with what the code and its parts
// use.
func (f lua) checkIndexes(table, code string) (faults []string) {
	told, used := map[string]bool{}, map[string]bool{}
	for _, found := range documented.FindAllStringSubmatch(f.header[table], -1) {
		told[found[1]] = true
	}
	for _, found := range regexp.MustCompile(table+`(?:\[([^\]]*)\])?`).FindAllStringSubmatch(code, -1) {
		if !regexp.MustCompile(`^\d+$`).MatchString(found[1]) {
			faults = append(faults, fmt.Sprintf("%s is used as %s: only %s[number] can be checked", table, found[0], table))
			continue
		}
		used[found[1]] = true
	}
	for _, n := range slices.Sorted(maps.Keys(told)) {
		if !used[n] {
			faults = append(faults, fmt.Sprintf("%s[%s] is documented and not used", table, n))
		}
	}
	for _, n := range slices.Sorted(maps.Keys(used)) {
		if !told[n] {
			faults = append(faults, fmt.Sprintf("%s[%s] is used and not documented", table, n))
		}
	}
	if len(told) == 0 && f.header[table] != "none" {
		faults = append(faults, table+" documents nothing: say none")
	}
	return faults
}

// checkReplies compares the outcomes that the header lists with those that the code answers.
func (f lua) checkReplies() (faults []string) {
	told, given := outcomesIn(f.header["Reply"]), outcomesIn(f.code)
	for _, word := range told {
		if !slices.Contains(given, word) {
			faults = append(faults, fmt.Sprintf("reply %s is listed and never given", word))
		}
	}
	for _, word := range given {
		if !slices.Contains(told, word) {
			faults = append(faults, fmt.Sprintf("reply %s is given and not listed", word))
		}
	}
	return faults
}

func outcomesIn(text string) []string {
	set := map[string]bool{}
	for _, found := range outcomeWord.FindAllStringSubmatch(text, -1) {
		set[found[1]] = true
	}
	return slices.Sorted(maps.Keys(set))
}

// checkCalls looks at the command and at the key of every call: a key is KEYS[n], a local that is
// one and stays one, or a function's parameter.
func checkCalls(code string) (faults []string) {
	keys := keyNames(code)
	for _, found := range calls.FindAllStringSubmatch(code, -1) {
		command := quotedName.FindStringSubmatch(strings.TrimSpace(found[1]))
		switch key := strings.TrimSpace(found[2]); {
		case command == nil:
			faults = append(faults, fmt.Sprintf("the command %s is not written out", found[1]))
		case !reading[command[1]] && !writing[command[1]]:
			faults = append(faults, fmt.Sprintf("%s is on neither list of commands", command[1]))
		case keyless[command[1]] || element.MatchString(key):
		case !keys[key]:
			faults = append(faults, fmt.Sprintf("%s takes the key %s, which need not be one of KEYS", command[1], key))
		case regexp.MustCompile(`(?m)^ *(?:[a-z_]+, *)*` + key + ` *(?:, *[a-z_]+ *)*=[^=]`).MatchString(code):
			faults = append(faults, fmt.Sprintf("the key %s is assigned to", key))
		}
	}
	return faults
}

// keyNames finds the names that stand for a key: locals whose value is KEYS[n], and parameters.
func keyNames(code string) map[string]bool {
	names := map[string]bool{}
	for _, found := range locals.FindAllStringSubmatch(code, -1) {
		values := strings.Split(found[2], ", ")
		for i, name := range strings.Split(found[1], ", ") {
			if i < len(values) && element.MatchString(values[i]) {
				names[name] = true
			}
		}
	}
	for _, found := range functions.FindAllStringSubmatch(code, -1) {
		for _, name := range wordOfALocal.FindAllString(found[2], -1) {
			names[name] = true
		}
	}
	return names
}

func checkEffect(effect, code string) []string {
	writes := 0
	for _, found := range calls.FindAllStringSubmatch(code, -1) {
		if writing[strings.Trim(strings.TrimSpace(found[1]), "'")] {
			writes++
		}
	}
	switch {
	case effect == "none" && writes > 0:
		return []string{"Effect none, and it calls a command that writes"}
	case effect != "none" && writes == 0:
		return []string{"Effect " + effect + ", and it calls no command that writes"}
	}
	return nil
}

// listed are the outcomes that a script's header lists.
func listed(script *scripts.Script) []string {
	text, err := os.ReadFile(script.Name + ".lua")
	if err != nil {
		panic(err)
	}
	return outcomesIn(parse(script.Name, string(text)).header["Reply"])
}

// readAll returns the Lua files that a pattern finds, by name.
func readAll(t *testing.T, pattern string) map[string]string {
	t.Helper()
	paths, err := filepath.Glob(pattern)
	if err != nil || len(paths) == 0 {
		t.Fatalf("the files of %s: got %v and error %v, want some", pattern, paths, err)
	}
	texts := map[string]string{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		expect.NoError(t, "os.ReadFile", err)
		texts[strings.TrimSuffix(filepath.Base(path), ".lua")] = string(text)
	}
	return texts
}
