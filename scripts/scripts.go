package scripts

import (
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
)

//go:embed *.lua lib/*.lua
var files embed.FS

// Script is one operation on Redis: a Lua text and the hash that Redis knows it by. It is immutable
// and safe for concurrent use.
type Script struct {
	Name string // the file's name without .lua, such as token_claim
	// what Redis runs: the library parts that the header names under Uses, then the file, with
	// further parts where it says so
	Source string
	SHA    string // SHA-1 of Source in hex, as EVALSHA takes it
	// the header says "Effect none": running it again, or not knowing whether it ran, harms nothing
	Reads bool

	trusting *Script // see Trusting; nil: it is the same
}

// The operations. Each file's header says what its script decides, its KEYS and ARGV, its replies
// and their units.
var (
	Incarnation = load("incarnation")

	TokenIssue    = load("token_issue")
	TokenGet      = load("token_get")
	TokenClaim    = load("token_claim")
	TokenAnswer   = load("token_answer")
	TokenComplete = load("token_complete")
	TokenExtend   = load("token_extend")
	TokenRelease  = load("token_release")

	OperationList   = load("operation_list")
	OperationGet    = load("operation_get")
	OperationSettle = load("operation_settle")

	CounterOpen   = load("counter_open")
	CounterEra    = load("counter_era")
	CounterIncr   = load("counter_incr")
	CounterSet    = load("counter_set")
	CounterRetire = load("counter_retire")
	CounterGet    = load("counter_get")

	WorkerCreate  = load("worker_create")
	WorkerAcquire = load("worker_acquire")
	WorkerRenew   = load("worker_renew")
	WorkerRelease = load("worker_release")
	WorkerGet     = load("worker_get")

	LockEnter = load("lock_enter")
	LockRenew = load("lock_renew")
	LockRaise = load("lock_raise")
	LockLeave = load("lock_leave")
	LockBreak = load("lock_break")
	LockGet   = load("lock_get")
	LockNote  = load("lock_note")
	LockNames = load("lock_names")

	NameAdd    = load("name_add")
	NameRemove = load("name_remove")
	NameList   = load("name_list")

	KeyAdd    = load("key_add")
	KeyRemove = load("key_remove")
	KeyList   = load("key_list")

	RateGet  = load("rate_get")
	RateSwap = load("rate_swap")

	LedgerAppend = load("ledger_append")
	LedgerList   = load("ledger_list")
)

// load reads an embedded script and puts the library parts it uses before it. Those that a line `--
// From here on: …` names come in its place: a server spends no time on what only such requests need
// that get there. A missing file is a programmer's mistake and panics at start-up.
func load(name string) *Script {
	text := read(name + ".lua")
	script := assemble(name, text, parts)
	if trusting := assemble(name, text, trustingParts); trusting.SHA != script.SHA {
		script.trusting = trusting
	}
	return script
}

// assemble puts a script together with its library parts.
func assemble(name, text string, parts func(names string) string) *Script {
	var before, body strings.Builder
	reads := false
	for line := range strings.Lines(text) {
		text := strings.TrimSuffix(line, "\n")
		if uses, is := strings.CutPrefix(text, "-- Uses "); is && before.Len() == 0 && strings.TrimSpace(uses) != "none" {
			before.WriteString(parts(uses))
		}
		if later, is := strings.CutPrefix(text, "-- From here on: "); is {
			line = parts(later) + line[len(text):]
		}
		reads = reads || text == "-- Effect none"
		body.WriteString(line)
	}
	source := before.String() + body.String()
	return &Script{Name: name, Source: source, SHA: hash(source), Reads: reads}
}

// Trusting returns the script as a store runs it that trusts restarts: state that is there counts
// as complete, also under another incarnation of the server (lib/trusted). It is the script itself
// if that does not ask for the incarnation.
func (s *Script) Trusting() *Script {
	if s.trusting == nil {
		return s
	}
	return s.trusting
}

// Names lists all operations, by the names of their files, in the order of the alphabet.
func Names() (names []string) {
	entries, err := files.ReadDir(".")
	if err != nil {
		panic(fmt.Sprintf("scripts: %v", err))
	}
	for _, entry := range entries {
		if name, is := strings.CutSuffix(entry.Name(), ".lua"); is {
			names = append(names, name)
		}
	}
	return names
}

// parts are the texts of library parts, one after the other.
func parts(names string) string {
	var texts strings.Builder
	for name := range strings.FieldsSeq(names) {
		texts.WriteString(read("lib/" + name + ".lua"))
	}
	return texts.String()
}

// trustingParts are these parts as a store has them that trusts restarts.
func trustingParts(names string) string {
	fields := strings.Fields(names)
	if at := slices.Index(fields, "incarnation"); at >= 0 {
		fields = slices.Insert(fields, at+1, "trusted")
	}
	return parts(strings.Join(fields, " "))
}

func hash(source string) string {
	sum := sha1.Sum([]byte(source))
	return hex.EncodeToString(sum[:])
}

// Behind returns one script that runs another text first, and then this one, whose reply it
// answers. That text is a whole script of somebody else's: as its KEYS it has the first `keys` keys
// of the call, as its ARGV the `args` arguments that follow the first `own`, which are this
// script's. What it returns stands in ARGV then, behind this script's own arguments; an error in it
// ends both.
func (s *Script) Behind(text string, keys, own, args int) *Script {
	source := fmt.Sprintf("ARGV[%d] = ", own+1) + "(function(KEYS, ARGV)\n" + text + "\nend)({" + elements("KEYS", 0, keys) + "}, {" + elements("ARGV", own, args) + "})\n" + s.Source
	chained := &Script{Name: s.Name, Source: source, SHA: hash(source)}
	if s.trusting != nil {
		chained.trusting = s.trusting.Behind(text, keys, own, args)
	}
	return chained
}

// elements names n elements of a table behind the first few, separated by commas.
func elements(table string, behind, n int) string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("%s[%d]", table, behind+i+1)
	}
	return strings.Join(names, ", ")
}

func read(path string) string {
	text, err := files.ReadFile(path)
	if err != nil {
		panic(fmt.Sprintf("scripts: %v", err))
	}
	return string(text)
}
