package main

import (
	"fmt"
	"strconv"
	"strings"
)

// answer is what a user asks first: how much or how long, and what others would take. It is read
// from the samples as a target is.
type answer struct {
	asked   string
	section string
	series  string
	unit    string
	side    string
	beside  string // the side that the ratio is to; "" = there is none
	called  string // what the reader knows it by
	absent  bool   // as of a target
}

// answers are the first table of the page.
var answers = []answer{
	{asked: "first requests with a key that one Redis can take, of all processes together", section: "redis", series: claimAndComplete,
		unit: aSecond, side: coatcheck},
	{asked: "the same: repeats", section: "redis", series: replayAct, unit: aSecond, side: coatcheck},
	{asked: "the same: locks, taken and released", section: "redis", series: lockAndRelease, unit: aSecond, side: coatcheck},
	{asked: "`GET /incr/{key}`, one key, 64 clients at once", section: "incr", series: "keys: 1, connections: 64", unit: perSecond,
		side: coatcheck, beside: webdisService, called: "Webdis", absent: true},
	{asked: "the same, how long for one client", section: "incr", series: "keys: 1, connections: 1, median", unit: "µs",
		side: coatcheck, beside: webdisService, called: "Webdis", absent: true},
	{asked: "`Incr` in Go, one key, 64 callers", section: "counters", series: "loopback, keys: 1, callers: 64", unit: callsASecond,
		side: coatcheck, beside: goRedisIncr, called: "go-redis"},
	{asked: "the same, 1,000 keys", section: "counters", series: "loopback, keys: 1000, callers: 64", unit: callsASecond,
		side: coatcheck, beside: goRedisIncr, called: "go-redis"},
	{asked: "`Incr` that a replica confirms, one key, 64 callers", section: "counters", series: "ack=1, keys: 1, callers: 64",
		unit: callsASecond, side: coatcheck, beside: goRedisIncr, called: "go-redis, WAIT"},
	{asked: "a POST guarded by the client's own key, 64 clients",
		section: "guard", series: "connections: 64", unit: perSecond, side: coatcheck,
		beside: unguarded, called: "unguarded"},
	{asked: "its repeat, 64 clients", section: "guard", series: "connections: 64", unit: perSecond, side: ownReplay,
		beside: unguarded, called: "unguarded"},
	{asked: "the same with a token that was issued before", section: "guard", series: "connections: 64", unit: perSecond, side: byToken,
		beside: coatcheck, called: "own key"},
	{asked: "its repeat", section: "guard", series: "connections: 64", unit: perSecond, side: byToken + " replay", beside: ownReplay,
		called: "own key"},
	{asked: "what guarding adds, one client", section: "guard", series: "connections: 1, added", unit: "µs", side: coatcheck,
		beside: twoPings, called: "two PINGs"},
	{asked: "what a repeat takes longer than the handler, one client", section: "guard", series: "connections: 1, added", unit: "µs",
		side: ownReplay, beside: onePing, called: "one PING"},
	{asked: "a POST through the gateway, guarded, 64 clients", section: "gateway", series: "connections: 64", unit: perSecond,
		side: gatewayGuarding, beside: reverseProxy, called: "a bare proxy"},
	{asked: "to lock and release, one caller", section: "locks", series: alone, unit: "µs", side: coatcheck, beside: redislockWay,
		called: "redislock"},
	{asked: "the same, 64 callers on as many locks", section: "locks", series: ownLocks, unit: "pairs/s", side: coatcheck,
		beside: redislockWay, called: "redislock"},
	{asked: "one lock, 8 processes, 1 ms each: changes of its owner", section: "locks", series: sectionOfOne + "owner changes",
		unit: "per s", side: coatcheck, beside: rueidislockIt, called: "rueidislock"},
	{asked: "a rate limit, 64 callers with a name each", section: "limits", series: takesApart, unit: callsASecond, side: coatcheck,
		beside: redisRate, called: "redis_rate"},
	{asked: "a Snowflake id, one caller", section: "ids", series: "an id, callers: 1", unit: "ns", side: coatcheck,
		beside: "bwmarrin", called: "bwmarrin/snowflake"},
	{asked: "a worker id each, for 1,000 processes that start at once", section: "workers", series: allStarted, unit: "s",
		side: "that lease a worker id", beside: "that lease nothing", called: "without"},
	{asked: "`coatcheck once` around a command that does nothing", section: "once", series: runNothing, unit: "ms", side: once,
		beside: byFlock, called: "flock", absent: true},
	{asked: "the same again, which runs nothing", section: "once", series: runNothing, unit: "ms", side: onceAgain, beside: bareCommand,
		called: "the command alone"},
	{asked: "Redis's memory of a key with 200 bytes of answer", section: "memory", series: "memory of a token",
		side: "completed with 200 bytes", unit: "bytes"},
}

// answersText is the table. Of sections that were not measured it has no rows.
func answersText(sections []section) (string, error) {
	lines := [][]string{{"what is asked", "coatcheck", "beside", "ratio"}}
	for _, a := range answers {
		for _, s := range sections {
			if s.Name != a.section || s.Fault != "" {
				continue
			}
			line, err := a.line(&s.Table)
			if err != nil {
				return "", err
			}
			lines = append(lines, line)
		}
	}
	return grid(lines), nil
}

func (a answer) line(from *table) ([]string, error) {
	own := from.rounds(a.series, a.side, a.unit)
	if len(own) == 0 {
		return nil, fmt.Errorf("%s: no samples of %q, %q, in %s", a.section, a.series, a.side, a.unit)
	}
	line := []string{"[" + a.asked + "](#" + a.section + ")", readable(median(own)) + " " + a.unit, "", ""}
	if a.beside == "" {
		return line, nil
	}
	other := from.rounds(a.series, a.beside, a.unit)
	switch {
	case len(other) > 0:
		line[2], line[3] = a.called+": "+readable(median(other)), cell(median(ratios(own, other)))+" ×"
	case !a.absent:
		return nil, fmt.Errorf("%s: no samples of %q, %q, in %s", a.section, a.series, a.beside, a.unit)
	}
	return line, nil
}

// readable is a cell with commas between thousands.
func readable(value float64) string {
	text := cell(value)
	whole, rest, _ := strings.Cut(text, ".")
	if _, err := strconv.Atoi(whole); err != nil || len(whole) < 4 {
		return text
	}
	for at := len(whole) - 3; at > 0; at -= 3 {
		whole = whole[:at] + "," + whole[at:]
	}
	if rest != "" {
		return whole + "." + rest
	}
	return whole
}
