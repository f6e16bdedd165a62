package scripts_test

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/scripts"
)

// formats has, for each key of each script, the kind of record whose format it may say, and after a
// dot the field of a hash that says it. After a dash is why a key says none: the list takes another
// name in another format; the lock is redislock's; or the lock's last grant, or the pool's head,
// says it.
var formats = map[string]string{
	"incarnation": "marker", "store_restored": "marker", "store_places": "marker", "store_leave": "marker",
	"token_issue": "token", "token_claim": "token -list", "token_answer": "token", "token_complete": "token -list",
	"token_extend": "token -list", "token_release": "token -list",
	"operation_list": "-list", "operation_count": "-list", "operation_get": "token", "operation_settle": "token -list",
	"operation_forget": "token", "operation_resolve": "token",
	"counter_open": "counter counter marker", "counter_era": "marker", "counter_incr": "counter counter marker counter", "counter_set": "counter counter marker",
	"counter_retire": "counter counter marker counter", "counter_get": "counter",
	"lock_enter": "-redislock lock -lock -lock -lock marker", "lock_renew": "-redislock lock -lock -lock -lock", "lock_leave": "-redislock lock -lock -lock -lock marker",
	"lock_break": "-redislock lock -lock -lock -lock marker", "lock_get": "-redislock lock -lock -lock -lock", "lock_note": "-list", "lock_names": "-list",
	"name_add": "-list", "name_remove": "-list", "name_list": "-list",
	"worker_create": "pool.pool -pool -pool", "worker_acquire": "pool.pool -pool -pool", "worker_renew": "pool.pool -pool -pool", "worker_release": "pool.pool -pool",
	"worker_get": "pool.pool -pool",
	"key_add":    "key.k", "key_remove": "key.k", "key_list": "key.k", "limit_take": "limit",
	"ledger_append": "-list", "ledger_list": "-list",
}

// meeting is one run of a script that meets a newer record at one of its keys.
type meeting struct {
	misuse

	at          int
	kind, field string
}

// meetings are all runs of [misuses] with a newer record at the key that they misuse, and at the
// first key of the script that may say its format, which is read in every run.
func meetings() (found []meeting) {
	rows := append(slices.Clone(misuses), misuse{"counter_set: counter", scripts.CounterSet, openKeys, 0, args(5, 0, hour, "any", "", ""), ""})
	for _, row := range rows {
		words := strings.Fields(formats[row.script.Name])
		first := slices.IndexFunc(words, says)
		for _, at := range slices.Compact([]int{row.list, first}) {
			if at < 0 || !says(words[at]) {
				continue
			}
			kind, field, _ := strings.Cut(words[at], ".")
			row.name = fmt.Sprintf("%s, newer %d", strings.SplitN(row.name, ", newer", 2)[0], at)
			found = append(found, meeting{row, at, kind, field})
		}
	}
	return append(found, meeting{misuse{"store_restored: pool", scripts.StoreRestored, poolKeys[:1], 0, func(b *box) []any {
		b.lease(lease{nonce: "n1"})
		return nil
	}, ""}, 0, "pool", "pool"})
}

func says(word string) bool { return !strings.HasPrefix(word, "-") }

// newer puts the word of a newer format before a record, whatever is there, and lets it end.
func (b *box) newer(key, field string) {
	b.Helper()
	const word = "@2:9.9.9"
	if field == "" {
		old, _ := b.do("GET", key).(string)
		b.do("SET", key, strings.TrimSpace(word+" "+old))
	} else {
		old, _ := b.do("HGET", key, field).(string)
		b.do("HSET", key, field, strings.TrimSpace(word+" "+old))
	}
	b.do("PEXPIRE", key, hour/2)
}

func TestARecordOfANewerFormatIsRefusedAndNothingChanges(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		for _, m := range meetings() {
			t.Run(m.name, func(t *testing.T) {
				b := b.on(t)
				b.do("FLUSHALL")
				args := m.before(b)
				b.newer(m.keys[m.at], m.field)
				before := b.look(m.keys...)
				reply, err := b.try(m.script, m.keys, args...)
				if want := "NEWER " + m.kind + " 2 1 9.9.9"; err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("%s: got %q and the error %v, want one with %q", lastAsked(t), reply, err, want)
				}
				b.same(before)
			})
		}
	})
}

func TestEveryKeyOfEveryScriptSaysItsFormatOrWhyNot(t *testing.T) {
	texts, met := readAll(t, "*.lua"), meetings()
	for _, script := range all {
		keys := documented.FindAllString(parse(script.Name, texts[script.Name]).header["KEYS"], -1)
		words := strings.Fields(formats[script.Name])
		if len(words) != len(keys) {
			t.Errorf("%s has %d keys, and the formats of %q are known", script.Name, len(keys), words)
			continue
		}
		for at, word := range words {
			if says(word) && !slices.ContainsFunc(met, func(m meeting) bool { return m.script == script && m.at == at }) {
				t.Errorf("no test gives %s a newer record for KEYS[%d]", script.Name, at+1)
			}
		}
	}
}

// The kinds are those of lib/format, and docs/keys.md has the newest format of each.
func TestFormatsAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../docs/keys.md")
	expect.NoError(t, "os.ReadFile", err)
	known := map[string]string{}
	table := regexp.MustCompile(`known = \{(.*)\}`).FindStringSubmatch(readAll(t, "lib/format.lua")["format"])
	for _, found := range regexp.MustCompile(`(\w+) = (\d+)`).FindAllStringSubmatch(table[1], -1) {
		known[found[1]] = found[2]
		expect.Contains(t, "docs/keys.md", string(text), fmt.Sprintf("\n| `%s` | %s |", found[1], found[2]))
	}
	for script, words := range formats {
		for word := range strings.FieldsSeq(words) {
			if kind, _, _ := strings.Cut(word, "."); says(word) && known[kind] == "" {
				t.Errorf("%s: lib/format knows no kind %s", script, kind)
			}
		}
	}
}

func TestAFormatWordIsReadOrRefused(t *testing.T) {
	format := readAll(t, "lib/format.lua")["format"] + "refuse_newer('pool', ARGV[1]) return 'read'"
	each(t, func(t *testing.T, b *box) {
		for text, refused := range map[string]string{
			"": "", "41/10/12 0": "", "x@2:1.1.0": "", "@1:1.0.0 x": "",
			"@2:1.1.0": "NEWER pool 2 1 1.1.0", "@2:1.1.0-rc.1+b x": "NEWER pool 2 1 1.1.0-rc.1+b", "@10:2.0.0 x": "NEWER pool 10 1 2.0.0",
			"@": "NEWER pool ? 1 ?", "@2 1.1.0": "NEWER pool ? 1 ?", "@2:\n 1": "NEWER pool ? 1 ?", "@two:1.1.0": "NEWER pool ? 1 ?",
		} {
			answer, err := b.client.Eval(t.Context(), format, []string{"any"}, text).Result()
			if refused == "" && (err != nil || answer != "read") || refused != "" && (err == nil || !strings.Contains(err.Error(), refused)) {
				t.Errorf("%q: got %v and the error %v, want it refused as %q", text, answer, err, refused)
			}
		}
	})
}
