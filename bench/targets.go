package main

import (
	"fmt"
	"math"
	"strings"
)

// target is a figure that the project wants to reach, and how it is read from the results: a side's
// samples, beside those of another side in the same round.
type target struct {
	what    string
	section string // of the results
	series  string // the samples' What
	unit    string
	side    string
	beside  string  // "" = the value itself counts
	goal    float64 // 0 = the figure is only shown
	most    bool    // the goal is the most that the figure may be, not the least
	absent  bool    // samples may be missing: a side is not installed everywhere, or takes long
}

const (
	perSecond    = "requests/s"
	callsASecond = "calls/s"
	alone        = "acquire and release, one caller"
	ownLocks     = "acquire and release, 64 callers on as many locks"
	sectionOfOne = "8 processes, 1ms section: "
	emptySection = "8 processes, empty section: owner changes"
	ownReplay    = coatcheck + " replay"
	leastReplay  = rueidisAuto + " replay"
	fewSlots     = "1024 slots"
	mostSlots    = "1048576 slots"
)

// Goals are stated against the least that is possible in the same run: a bare connection, two
// PINGs, a script or a handler that does the same and guards nothing.
const (
	nearRate = 0.87 // of the calls that the least makes: 1 / 1.15
	nearTime = 1.15 // of the time that it takes
)

// The time that scripts took at commit 751e193e, before they were shortened, beside their bare
// commands: from 22 rounds of the redis command. The goals are parts of it.
const (
	claimsBefore   = 2.54 // claim and complete
	issuedBefore   = 3.12 // claim of an issued token
	replaysBefore  = 3.18
	extendsBefore  = 2.74
	locksBefore    = 1.79 // lock and release
	renewalsBefore = 3.8  // of worker ids
)

// nearScript is of the time that the bare commands of the same work take in a script.
const nearScript = 1.5

// targets are all targets, in the order of the page.
var targets = append(scriptTargets(), otherTargets...)

// scriptTargets are the goals of scripts, beside their bare commands.
func scriptTargets() (list []target) {
	beside := func(act, what string, goal float64) {
		list = append(list, target{what: what, section: "redis", series: act, unit: "µs", side: coatcheck, beside: bareCommands,
			goal: math.Round(goal*100) / 100, most: true})
	}
	beside(claimAndComplete, "in Redis, beside the bare commands: a first request, claim and complete", 0.62*claimsBefore)
	beside(claimIssued, "the same: "+claimIssued, 0.62*issuedBefore)
	beside(replayAct, "the same: a replay", 0.7*replaysBefore)
	beside(extendAct, "the same: a heartbeat", 0.7*extendsBefore)
	beside(lockAndRelease, "the same: lock and release, a free lock", 0.75*locksBefore)
	beside(renewFewAct, "the same: renewing a worker id", 0.75*renewalsBefore)
	for _, act := range []string{issueAct, settleAct, renewLock, handOverAct, acquireAct, openAct, incrAct, segmentAct, limitAct} {
		beside(act, "the same: "+act, nearScript)
	}
	return append(list,
		target{what: "renewing a worker id, 1,048,576 slots beside 1,024", section: "redis", series: renewRing, unit: "µs", side: mostSlots,
			beside: fewSlots, goal: 1.1, most: true},
		target{what: "Redis's memory of a key with 200 bytes of answer", section: "redis", series: completeAct, unit: "bytes",
			side: coatcheck, goal: 700, most: true})
}

// otherTargets are the goals beside other things.
var otherTargets = []target{
	{what: "`GET /incr/{key}` beside Echo with package counter and Echo's own middleware for what coatcheck's answers have, one key, " +
		"64 connections", section: "incr", series: "keys: 1, connections: 64", unit: perSecond, side: coatcheck, beside: echoMiddleware,
		goal: nearRate},
	{what: "the same, 1,000 keys", section: "incr", series: "keys: 1000, connections: 64", unit: perSecond, side: coatcheck,
		beside: echoMiddleware, goal: nearRate},
	{what: "beside Echo with package counter, without that middleware, one key", section: "incr", series: "keys: 1, connections: 64",
		unit: perSecond, side: coatcheck, beside: echoCounters},
	{what: "beside a bare Echo handler without Redis, one key", section: "incr", series: "keys: 1, connections: 64",
		unit: perSecond, side: coatcheck, beside: echoConstant},

	{what: "`Incr` on 1,000 keys beside calls handed to one goroutine with a bare connection, 64 callers", section: "counters",
		series: "loopback, keys: 1000, callers: 64", unit: callsASecond, side: coatcheck, beside: handedBare, goal: nearRate},
	{what: "the same, one key", section: "counters", series: "loopback, keys: 1, callers: 64", unit: callsASecond, side: coatcheck,
		beside: handedBare, goal: nearRate},
	{what: "`Incr` on 1,000 keys beside go-redis's AutoPipeline, 64 callers", section: "counters",
		series: "loopback, keys: 1000, callers: 64", unit: callsASecond, side: coatcheck, beside: goRedisAutoIncr},
	{what: "the same, 1,024 callers", section: "counters", series: "loopback, keys: 1000, callers: 1024", unit: callsASecond,
		side: coatcheck, beside: goRedisAutoIncr},
	{what: "calls handed to one goroutine, without Redis, beside AutoPipeline", section: "counters",
		series: "loopback, keys: 1000, callers: 64", unit: callsASecond, side: handedOver, beside: goRedisAutoIncr},

	{what: "time to lock and release, one caller, beside two PINGs", section: "locks", series: alone, unit: "µs", side: coatcheck,
		beside: bareTrips, goal: nearTime, most: true},
	{what: "lock and release, 64 callers on as many locks, beside two PINGs", section: "locks", series: ownLocks, unit: "pairs/s",
		side: coatcheck, beside: bareTrips, goal: nearRate},
	{what: "rueidislock beside redislock there", section: "locks", series: ownLocks, unit: "pairs/s", side: rueidislockIt,
		beside: redislockWay},
	{what: "8 processes, a section of 1 ms: owner changes beside a token in a list of Redis", section: "locks",
		series: sectionOfOne + "owner changes", unit: "per s", side: coatcheck, beside: bareList, goal: nearRate},
	{what: "the same: the 99th percentile of waits", section: "locks", series: sectionOfOne + "p99 wait", unit: "ms", side: coatcheck,
		beside: bareList, goal: nearTime, most: true},
	{what: "8 processes, an empty section: owner changes beside a token in a list of Redis", section: "locks", series: emptySection,
		unit: "per s", side: coatcheck, beside: bareList, goal: nearRate},
	{what: "the same beside rueidislock", section: "locks", series: emptySection, unit: "per s", side: coatcheck, beside: rueidislockIt},

	{what: "a rate limit beside a count with a TTL in a script, one caller", section: "limits", series: oneTake, unit: callsASecond,
		side: coatcheck, beside: bareWindow, goal: nearRate},
	{what: "the same, 64 callers with a name each", section: "limits", series: takesApart, unit: callsASecond, side: coatcheck,
		beside: bareWindow, goal: nearRate},
	{what: "redis_rate there", section: "limits", series: takesApart, unit: callsASecond, side: redisRate, beside: bareWindow},

	{what: "guarded POST, first requests, beside the handler between two PINGs, 64 connections", section: "guard",
		series: "connections: 64", unit: perSecond, side: coatcheck, beside: twoPings, goal: nearRate},
	{what: "the same, 256 connections", section: "guard", series: "connections: 256", unit: perSecond, side: coatcheck,
		beside: twoPings, goal: nearRate},
	{what: "the same two scripts by rueidis, without anything around them, beside two PINGs, 64 connections", section: "guard",
		series: "connections: 64", unit: perSecond, side: rueidisAuto, beside: twoPings},
	{what: "the same, 256 connections", section: "guard", series: "connections: 256", unit: perSecond, side: rueidisAuto, beside: twoPings},
	{what: "first requests with a token that was issued before, beside the client's own key, 64 connections", section: "guard",
		series: "connections: 64", unit: perSecond, side: byToken, beside: coatcheck},
	{what: "replays beside one shared PING in the place of the handler, 64 connections", section: "guard",
		series: "connections: 64", unit: perSecond, side: ownReplay, beside: onePing, goal: nearRate},
	{what: "the same, 256 connections", section: "guard", series: "connections: 256", unit: perSecond, side: ownReplay,
		beside: onePing, goal: nearRate},
	{what: "the same script by rueidis, without anything around it, beside the shared PING, 64 connections", section: "guard",
		series: "connections: 64", unit: perSecond, side: leastReplay, beside: onePing},
	{what: "the same, 256 connections", section: "guard", series: "connections: 256", unit: perSecond, side: leastReplay,
		beside: onePing},

	{what: "acquiring a worker id, in Redis, 1,048,576 slots beside 1,024", section: "slots", series: "acquire", unit: "µs",
		side: mostSlots, beside: fewSlots, goal: nearTime, most: true},
	{what: "renewing a worker id there", section: "slots", series: "renew", unit: "µs", side: mostSlots, beside: fewSlots,
		goal: nearTime, most: true},

	{what: "`coatcheck once` beside a start of the program that does nothing", section: "once", series: runNothing, unit: "ms",
		side: once, beside: itsVersion},
	{what: "the same: `coatcheck lock run`", section: "once", series: runNothing, unit: "ms", side: lockRun, beside: itsVersion},

	{what: "the program, stripped (`make build`)", section: "size", series: programSize, unit: "MB", side: coatcheck, goal: 25, most: true},
	{what: "its build with an empty cache (`go run` in a new clone, the modules there)", section: "size", series: coldBuild,
		unit: "s", side: coatcheck, goal: 90, most: true, absent: true},
	{what: "the least there: what it imports of the standard library", section: "size", series: coldBuild,
		unit: "s", side: standardLibrary, absent: true},
}

// The verdicts on a target.
const (
	met         = "met"
	notMet      = "**not met**"
	shown       = "shown"
	notMeasured = "not measured"
)

// figure is what a run says of a target.
type figure struct {
	target

	rounds  []float64
	verdict string
}

// judgeTargets reads targets from the sections that were measured. A section without the
// samples of a target is an error: the two must name them alike.
func judgeTargets(targets []target, sections []section) ([]figure, error) {
	var figures []figure
	for _, target := range targets {
		figure := figure{target: target, verdict: notMeasured}
		for _, section := range sections {
			if section.Name != target.section || section.Fault != "" {
				continue
			}
			var err error
			if figure.rounds, err = target.read(&section.Table); err != nil {
				return nil, err
			}
		}
		if len(figure.rounds) > 0 {
			figure.verdict = target.judge(median(figure.rounds))
		}
		figures = append(figures, figure)
	}
	return figures, nil
}

// read returns the target's figure in each round, none if its other side is not installed.
func (t target) read(table *table) ([]float64, error) {
	own := table.rounds(t.series, t.side, t.unit)
	if len(own) == 0 {
		if t.absent && t.beside == "" {
			return nil, nil
		}
		return nil, fmt.Errorf("%s: no samples of %q, %q, in %s", t.section, t.series, t.side, t.unit)
	}
	if t.beside == "" {
		return own, nil
	}
	other := table.rounds(t.series, t.beside, t.unit)
	if len(other) == 0 && !t.absent {
		return nil, fmt.Errorf("%s: no samples of %q, %q, in %s", t.section, t.series, t.beside, t.unit)
	}
	return ratios(own, other), nil
}

func (t target) judge(value float64) string {
	switch {
	case t.goal == 0:
		return shown
	case t.most && value <= t.goal, !t.most && value >= t.goal:
		return met
	}
	return notMet
}

// mark is the unit of a figure.
func (t target) mark() string {
	if t.beside != "" {
		return " ×"
	}
	return " " + t.unit
}

// goalText is the goal as the page has it.
func (t target) goalText() string {
	switch {
	case t.goal == 0:
		return "–"
	case t.most:
		return fmt.Sprintf("≤ %g%s", t.goal, t.mark())
	}
	return fmt.Sprintf("≥ %g%s", t.goal, t.mark())
}

// targetsText is the table of targets and how many are met.
func targetsText(figures []figure) string {
	lines := [][]string{{"what", "goal", "this run", "middle half", ""}}
	counts := map[string]int{}
	for _, f := range figures {
		counts[f.verdict]++
		value := "–"
		if len(f.rounds) > 0 {
			value = cell(median(f.rounds)) + f.mark()
		}
		lines = append(lines, []string{"[" + f.what + "](#" + f.section + ")", f.goalText(), value, spread(f.rounds), f.verdict})
	}
	var text strings.Builder
	fmt.Fprintf(&text, "Met: %d. Not met: %d. Not measured: %d.\n\n", counts[met], counts[notMet], counts[notMeasured])
	text.WriteString(grid(lines))
	return text.String()
}
