package engines

import (
	"crypto/sha1" // the name that Redis gives a script; it guards nothing
	_ "embed"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Zeros is the master_replid of a server that has none.
const Zeros = "0000000000000000000000000000000000000000"

// Redis60 is Redis 6.0, as far as it matters: SET has no GET, and so locks fail in their middle.
var Redis60 = Engine{Info: map[string]string{"redis_version": "6.0.16", "valkey_version": "", "server_name": ""}, NoSetGet: true}

// KeyDB is KeyDB as far as it tells by INFO that it is one, and not in scripts.
var KeyDB = Engine{Sections: map[string]string{"keydb": "# KeyDB\r\nmvcc_depth:0\r\n"}}

// Engine is what a server is made to look like. The zero Engine is the server as it is.
type Engine struct {
	// Info has lines of INFO by their names: another value, or "" to leave the line out. It is the
	// same in a script.
	Info map[string]string
	// Sections are sections that INFO has besides, by their names, also without a name.
	Sections map[string]string
	// Unknown are commands that it does not know, also not in a script; upper case.
	Unknown []string
	// NotInScripts are commands that it knows and runs, but not in a script; upper case.
	NotInScripts []string
	// NoLua has no script run, as Valkey 9.1 without its module lua.
	NoLua bool
	// NoSetGet refuses SET with GET, as Redis before 6.2.
	NoSetGet bool
}

// The refusals, as redis-server 7.0 and Valkey 9.1 word them.
const (
	notInScripts = "ERR This Redis command is not allowed from script"
	unknown      = "ERR Unknown Redis command called from script"
	noLua        = "ERR Could not find scripting engine 'lua'"
	noScript     = "NOSCRIPT No matching script."
	noSetGet     = "ERR syntax error"
)

// refuses returns the engine's refusal of a command outside of a script, or "".
func (e Engine) refuses(words []string) string {
	name := strings.ToUpper(words[0])
	switch {
	case slices.Contains(e.Unknown, name):
		var text strings.Builder
		fmt.Fprintf(&text, "ERR unknown command '%s', with args beginning with: ", words[0])
		for _, word := range words[1:] {
			fmt.Fprintf(&text, "'%.128s' ", word)
		}
		return strings.NewReplacer("\r", " ", "\n", " ").Replace(text.String())
	case e.NoLua && name == "EVALSHA":
		return noScript
	case e.NoLua && (name == "EVAL" || name == "SCRIPT" && len(words) > 1 && strings.EqualFold(words[1], "load")):
		return noLua
	case e.NoSetGet && name == "SET" && slices.ContainsFunc(words[min(3, len(words)):],
		func(word string) bool { return strings.EqualFold(word, "get") }):
		return noSetGet
	}
	return ""
}

// info returns a text of INFO as the engine tells it.
func (e Engine) info(text string) string {
	var told strings.Builder
	for line := range strings.Lines(text) {
		name, _, _ := strings.Cut(line, ":")
		value, changed := e.Info[name]
		switch {
		case !changed:
			told.WriteString(line)
		case value != "":
			told.WriteString(name + ":" + value + "\r\n")
		}
	}
	return told.String()
}

// more returns the sections that INFO has besides.
func (e Engine) more(asked []string) (text string) {
	for name, section := range e.Sections {
		if len(asked) == 0 || slices.ContainsFunc(asked, func(one string) bool { return strings.EqualFold(one, name) }) {
			text += section
		}
	}
	return text
}

// script returns a script's text with a line before it that does the same to the commands in it.
func (e Engine) script(text string) string {
	refused := map[string]string{}
	for _, name := range e.Unknown {
		refused[name] = unknown
	}
	for _, name := range e.NotInScripts {
		refused[name] = notInScripts
	}
	if len(refused)+len(e.Info) == 0 && !e.NoSetGet {
		return text
	}
	table := func(of map[string]string) string {
		var fields strings.Builder
		for name, value := range of {
			fmt.Fprintf(&fields, "[%q]=%q,", name, value)
		}
		return "{" + fields.String() + "}"
	}
	_, code, _ := strings.Cut(between, "local redis")
	before := "local redis" + strings.NewReplacer("@refused", table(refused), "@info", table(e.Info), "@nosetget",
		strconv.FormatBool(e.NoSetGet), "@syntax", noSetGet, "\n", " ").Replace(code)
	if head, rest, is := strings.Cut(text, "\n"); is && strings.HasPrefix(head, "#!") {
		return head + "\n" + before + rest
	}
	return before + text
}

// between stands for redis in a script.
//
//go:embed between.lua
var between string

// sha is the name that Redis gives a script.
func sha(text string) string {
	sum := sha1.Sum([]byte(text)) // as above
	return hex.EncodeToString(sum[:])
}
