package scripts

import (
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"sync"
)

//go:embed *.lua lib/*.lua
var files embed.FS

// Script is one operation on Redis. It is immutable and safe for concurrent use.
type Script struct {
	Name string // the file's name without .lua, such as token_claim

	text func() *Text // made when it is first used: a program needs few of them
}

// Text returns the script's text and the facts in its header.
func (s *Script) Text() *Text { return s.text() }

// Text is the Lua text of a script, and the hash that Redis knows it by.
type Text struct {
	// what Redis runs: the file, and what it needs of the parts that its header names under Uses
	Source string
	SHA    string // SHA-1 of Source in hex, as EVALSHA takes it
	// the header says "Effect none": running it again, or not knowing whether it ran, harms nothing
	Reads bool
	// it depends on what Redis may lose (lib/incarnation): its last argument are the caller's facts
	Incarnation bool
	// a call with fewer keys depends on nothing of that; 0 = each call does
	MarkerKey int

	first int // so many bytes of Source run before another package's text: see Following
}

// The operations. Each file's header says what its script decides, its KEYS and ARGV, its replies
// and their units.
var (
	Incarnation   = load("incarnation")
	StoreRestored = load("store_restored")
	StorePlaces   = load("store_places")
	StoreLeave    = load("store_leave")

	TokenIssue    = load("token_issue")
	TokenClaim    = load("token_claim")
	TokenAnswer   = load("token_answer")
	TokenComplete = load("token_complete")
	TokenExtend   = load("token_extend")
	TokenRelease  = load("token_release")

	OperationList    = load("operation_list")
	OperationCount   = load("operation_count")
	OperationGet     = load("operation_get")
	OperationSettle  = load("operation_settle")
	OperationForget  = load("operation_forget")
	OperationResolve = load("operation_resolve")

	CounterOpen = load("counter_open")
	CounterEra  = load("counter_era")
	CounterIncr = load("counter_incr")
	// CounterBegin is CounterIncr under the name of another purpose, for observers: it begins a
	// counter that was absent.
	CounterBegin  = &Script{"counter_begin", CounterIncr.text}
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

	LimitTake = load("limit_take")

	LedgerAppend = load("ledger_append")
	LedgerList   = load("ledger_list")
)

// New returns a script whose file has the given text. It serves tests, which bring their own.
func New(name, text string) *Script {
	return &Script{name, sync.OnceValue(func() *Text { return joined(text) })}
}

// load returns an embedded script. A missing file is a programmer's mistake and panics at its first
// use.
func load(name string) *Script {
	return &Script{name, sync.OnceValue(func() *Text { return joined(read(name + ".lua")) })}
}

// joined joins a script's text with the library parts that it uses.
func joined(text string) *Text {
	_, uses, _ := strings.Cut(text, "\n-- Uses ")
	uses, _, _ = strings.Cut(uses, "\n-- KEYS ") // the next section
	parts := slices.DeleteFunc(strings.Fields(uses), func(part string) bool { return part == "none" || part == "--" })
	source := join(text, parts)
	t := &Text{Source: source, SHA: hash(source), Reads: strings.Contains(text, "\n-- Effect none\n"),
		Incarnation: slices.Contains(parts, "incarnation"), first: max(0, strings.Index(source, following))}
	if slices.Contains(parts, "lock_doubt") {
		t.MarkerKey = 6
	}
	return t
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

func hash(source string) string {
	sum := sha1.Sum([]byte(source))
	return hex.EncodeToString(sum[:])
}

// Following returns one script that runs another text first, and then this one, whose reply it
// returns. Only the statements above the comment `following` come before it, and may end the call
// without it. The text is a whole script that another package wrote: its KEYS are the first `keys`
// keys of the call, its ARGV the `args` arguments that follow the first `own`, which are this
// script's, the facts of lib/incarnation among them. Its reply then follows this script's own
// arguments in ARGV; an error in it ends both.
func (s *Script) Following(before string, keys, own, args int) *Script {
	text := *s.Text()
	text.Source = text.Source[:text.first] + fmt.Sprintf("ARGV[%d] = ", own+1) + "(function(KEYS, ARGV)\n" + before +
		"\nend)({" + elements("KEYS", 0, keys) + "}, {" + elements("ARGV", own, args) + "})\n" + text.Source[text.first:]
	text.SHA, text.Reads = hash(text.Source), false
	return &Script{s.Name, func() *Text { return &text }}
}

// following is the comment in a script before which another package's text runs.
const following = "-- Another package's script runs before this line.\n"

// elements names n elements of a table after the first few, separated by commas.
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
