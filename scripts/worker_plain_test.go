package scripts_test

import (
	"fmt"
	"maps"
	"regexp"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/coatcheck/coatcheck/scripts"
)

var plainPart = regexp.MustCompile(`(?s)\nlocal function [a-z]+_plain\(\)\n.*?\nend\n\nlocal [a-z]+ = [a-z]+_plain\(\)\nif .*?\nend\n`)

// divide returns the first part of a script, which answers plain requests and nothing else, as a
// script of its own, and the script without it.
func divide(t *testing.T, script *scripts.Script) (plain, rest string) {
	t.Helper()
	at := plainPart.FindAllStringIndex(script.Source, -1)
	if len(at) != 1 {
		t.Fatalf("%s has %d parts for plain requests", script.Name, len(at))
	}
	return script.Source[:at[0][1]] + "return {'not plain'}\n", script.Source[:at[0][0]] + script.Source[at[0][1]:]
}

// replace has another text run in place of a script.
func (b *box) replace(script *scripts.Script, text string) {
	b.Helper()
	if b.instead == nil {
		b.instead = map[*scripts.Script]*scripts.Script{}
	}
	b.instead[script] = &scripts.Script{Name: script.Name + " in part", Source: text, SHA: redis.NewScript(text).Hash()}
}

// plainRequests are those which a script answers before all else, on a full ring whose first slot,
// of ann, has lapsed, and whose second, of bob, was released later.
var plainRequests = map[string]func(b *box, open grant) []string{
	"renewal":                         func(b *box, open grant) []string { return b.prove(open.proof()) },
	"renewal without a proof":         func(b *box, open grant) []string { return b.renew(open, "") },
	"slot that was free longest":      asked(lease{}),
	"and an identity":                 asked(lease{identity: "cid"}),
	"and a cool-down":                 asked(lease{cooldown: minute}),
	"slot of this identity, lapsed":   asked(lease{identity: "ann"}),
	"slot of this identity, released": asked(lease{identity: "bob"}),
	// which is nothing to who had it before
	"slot of this identity, that rests": asked(lease{identity: "ann", cooldown: 2 * hour}),
	"of a pool that is as it is asked":  asked(lease{wantLayout: "41/10/12", wantEpoch: "1700000000000", wantDatacenter: "0", wantTTL: fmt.Sprint(hour)}),
}

func asked(l lease) func(*box, grant) []string {
	l.nonce = "new"
	return func(b *box, _ grant) []string { return b.run(scripts.WorkerAcquire, poolKeys, l.args()...) }
}

// ready makes such a ring.
func ready(b *box) (open grant) {
	b.Helper()
	b.do("FLUSHALL")
	b.lease(lease{nonce: "n0", identity: "ann"})
	b.pass(hour + minute)
	released := b.lease(lease{nonce: "n1", identity: "bob"})
	open = b.lease(lease{nonce: "n2", identity: "dan"})
	b.lease(lease{nonce: "n3"})
	b.free(released)
	return open
}

func TestPlainRequestsAreAnsweredFirst(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		only := b.on(t)
		for _, script := range []*scripts.Script{scripts.WorkerAcquire, scripts.WorkerRenew} {
			plain, _ := divide(t, script)
			only.replace(script, plain)
		}
		for name, ask := range plainRequests {
			t.Run(name, func(t *testing.T) {
				if reply := ask(only.on(t), ready(b.on(t))); reply[0] != "ok" && reply[0] != "granted" {
					t.Errorf("%s: got %q, want granted or ok", lastAsked(t), reply)
				}
				b.on(t).sound()
			})
		}
	})
}

// special are requests that are not plain, on the ring that ready makes, or on what is left of it.
func special(b *box) map[string]func(open grant) []string {
	acquire := func(l lease) []string { return asked(l)(b, grant{}) }
	rows := map[string]func(open grant) []string{
		"renewal with another nonce":         func(open grant) []string { open.nonce = "n3"; return b.renew(open, "") },
		"renewal with another start":         func(open grant) []string { open.from++; return b.renew(open, "") },
		"renewal of another slot":            func(open grant) []string { open.id = "3"; return b.renew(open, "") },
		"renewal of no slot":                 func(open grant) []string { open.id = "7"; return b.renew(open, "") },
		"renewal by another ttl":             func(open grant) []string { return b.renew(open, minute) },
		"renewal with a later end confirmed": func(open grant) []string { open.till++; return b.prove(open.proof()) },
		"renewal of what was given back":     func(open grant) []string { b.releaseUsed(open, b.now()+minute, 0); return b.renew(open, "") },
		"renewal of what has ended":          func(open grant) []string { b.pass(2 * hour); return b.renew(open.past(2*hour), "") },
		"renewal by a clock that is behind":  func(open grant) []string { b.pass(-minute); return b.renew(open.past(-minute), "") },

		"known nonce": func(open grant) []string {
			return b.run(scripts.WorkerAcquire, poolKeys, lease{nonce: open.nonce}.args()...)
		},
		"other layout":     func(grant) []string { return acquire(lease{wantLayout: "x"}) },
		"other epoch":      func(grant) []string { return acquire(lease{wantEpoch: "1"}) },
		"other center":     func(grant) []string { return acquire(lease{wantDatacenter: "1"}) },
		"other ttl":        func(grant) []string { return acquire(lease{wantTTL: "1"}) },
		"layout unknown":   func(grant) []string { b.setHead("layout", "-"); return acquire(lease{}) },
		"slot never used":  func(grant) []string { b.setHead("next", 3); return acquire(lease{}) },
		"fence ahead":      func(grant) []string { b.setHead("fence", b.now()*1000+hour*1000); return acquire(lease{}) },
		"own is open":      func(grant) []string { return acquire(lease{identity: "dan"}) },
		"own is another's": func(grant) []string { b.do("HSET", poolKeys[2], "i:cid", "0"); return acquire(lease{identity: "cid"}) },
		"own is none":      func(grant) []string { b.do("HSET", poolKeys[2], "i:cid", "7"); return acquire(lease{identity: "cid"}) },
		"index gone":       func(grant) []string { b.do("DEL", poolKeys[1]); return acquire(lease{}) },
		"slot not indexed": func(grant) []string { b.do("ZREM", poolKeys[1], "3"); return acquire(lease{}) },
		"no slot free":     func(grant) []string { b.pass(-hour); return acquire(lease{}) },
		"slot rests":       func(grant) []string { return acquire(lease{cooldown: 2 * minute}) },
		"released slot rests": func(grant) []string {
			b.lease(lease{nonce: "n4"})
			return acquire(lease{cooldown: 1})
		},
	}
	for name, loss := range losses() {
		rows["renewal, lost: "+name] = func(open grant) []string { loss.lose(b); return b.renew(open, "") }
		rows["lost: "+name] = func(grant) []string { loss.lose(b); return acquire(lease{}) }
	}
	rows["renewal in quarantine"] = func(open grant) []string { b.setHead("quarantine", b.now()+minute); return b.renew(open, "") }
	rows["in quarantine"] = func(grant) []string { b.setHead("quarantine", b.now()+minute); return acquire(lease{}) }
	return rows
}

// What is not plain is left to the rest of the script, as it was found.
func TestFirstPartLeavesTheRestWhatIsNotPlain(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		only := b.on(t)
		for _, script := range []*scripts.Script{scripts.WorkerAcquire, scripts.WorkerRenew} {
			plain, _ := divide(t, script)
			only.replace(script, plain)
		}
		for name := range special(b) {
			t.Run(name, func(t *testing.T) {
				open := ready(b.on(t))
				if reply := special(only.on(t))[name](open); reply[0] != "not plain" {
					t.Errorf("%s: got %q, want it left to the rest of the script, as `not plain`", lastAsked(t), reply)
				}
			})
		}
	})
}

func TestMomentWritesWholeMilliseconds(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		text := readAll(t, "lib/moment.lua")["moment"] + "return moment(tonumber(ARGV[1]))"
		for _, ms := range []string{"1700000000000", "1700000000001", "1700000999999", "1700001000000", "1795303012345", "1000000", "9007199254740991"} {
			if got := b.do("EVAL", text, 0, ms); got != ms {
				t.Errorf("%s is written as %s", ms, got)
			}
		}
	})
}

// The commands that a script calls are most of what it costs the server.
func TestPlainRequestsTakeFewCommands(t *testing.T) {
	t.Parallel()
	b := open(t, "redis")
	renewal := map[string]string{"time": "1", "info": "1", "hmget": "1", "hlen": "1", "zrem": "1", "zadd": "1", "hset": "1"}
	grant := map[string]string{"time": "1", "info": "1", "hmget": "3", "hlen": "1", "zrange": "1", "zcard": "1", "zadd": "1", "hset": "2", "hdel": "1"}
	for name, want := range map[string]map[string]string{
		"renewal": renewal, "renewal without a proof": renewal, "slot that was free longest": grant, "and an identity": grant,
	} {
		t.Run(name, func(t *testing.T) {
			b := b.on(t)
			open := ready(b)
			b.do("CONFIG", "RESETSTAT")
			plainRequests[name](b, open)
			got := map[string]string{}
			for line := range strings.Lines(b.do("INFO", "commandstats").(string)) {
				if found := regexp.MustCompile(`^cmdstat_([a-z]+):calls=(\d+)`).FindStringSubmatch(line); found != nil && found[1] != "evalsha" {
					got[found[1]] = found[2]
				}
			}
			if !maps.Equal(got, want) {
				t.Errorf("it called %v, want %v", got, want)
			}
		})
	}
}
