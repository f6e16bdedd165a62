package main

import (
	"fmt"
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

// targets are all targets, in the order of the page.
var targets = []target{
	{what: "`GET /incr/{key}` beside Echo with package counter, one key, 64 connections", section: "incr",
		series: "keys: 1, connections: 64", unit: perSecond, side: coatcheck, beside: echoCounters, goal: 0.95},
	{what: "the same, 1,000 keys", section: "incr", series: "keys: 1000, connections: 64", unit: perSecond, side: coatcheck,
		beside: echoCounters, goal: 0.95},
	{what: "the handler with Echo's own middleware for what coatcheck's answers have, beside it without, one key", section: "incr",
		series: "keys: 1, connections: 64", unit: perSecond, side: echoMiddleware, beside: echoCounters},
	{what: "the same, 1,000 keys", section: "incr", series: "keys: 1000, connections: 64", unit: perSecond, side: echoMiddleware,
		beside: echoCounters},
	{what: "`GET /incr/{key}` beside a bare Echo handler without Redis, one key", section: "incr", series: "keys: 1, connections: 64",
		unit: perSecond, side: coatcheck, beside: echoConstant, goal: 0.95},
	{what: "the same beside Webdis, one key", section: "incr", series: "keys: 1, connections: 64", unit: perSecond, side: coatcheck,
		beside: webdisService, goal: 0.95, absent: true},

	{what: "`Incr` on 1,000 keys beside go-redis's AutoPipeline, 64 callers", section: "counters",
		series: "loopback, keys: 1000, callers: 64", unit: callsASecond, side: coatcheck, beside: goRedisAutoIncr, goal: 1.2},
	{what: "calls handed to one goroutine with a bare connection, beside AutoPipeline", section: "counters",
		series: "loopback, keys: 1000, callers: 64", unit: callsASecond, side: handedBare, beside: goRedisAutoIncr},
	{what: "the least there: calls handed to one goroutine, without Redis, beside AutoPipeline", section: "counters",
		series: "loopback, keys: 1000, callers: 64", unit: callsASecond, side: handedOver, beside: goRedisAutoIncr},
	{what: "`Incr` there, 256 callers", section: "counters", series: "loopback, keys: 1000, callers: 256", unit: callsASecond,
		side: coatcheck, beside: goRedisAutoIncr, goal: 1.2},
	{what: "the same, 1,024 callers", section: "counters", series: "loopback, keys: 1000, callers: 1024", unit: callsASecond,
		side: coatcheck, beside: goRedisAutoIncr, goal: 1.2},
	{what: "`Incr` on one key beside go-redis, 64 callers", section: "counters", series: "loopback, keys: 1, callers: 64",
		unit: callsASecond, side: coatcheck, beside: goRedisIncr, goal: 10},
	{what: "calls handed to one goroutine with a bare connection, beside go-redis", section: "counters",
		series: "loopback, keys: 1, callers: 64", unit: callsASecond, side: handedBare, beside: goRedisIncr},
	{what: "the least there: calls handed to one goroutine, without Redis, beside go-redis", section: "counters",
		series: "loopback, keys: 1, callers: 64", unit: callsASecond, side: handedOver, beside: goRedisIncr},

	{what: "time to lock and release, one caller, beside redislock", section: "locks", series: alone, unit: "µs", side: coatcheck,
		beside: redislockWay, goal: 1.1, most: true},
	{what: "the same beside two PINGs", section: "locks", series: alone, unit: "µs", side: coatcheck, beside: bareTrips},
	{what: "lock and release, 64 callers on as many locks, beside redislock", section: "locks", series: ownLocks,
		unit: "pairs/s", side: coatcheck, beside: redislockWay, goal: 1.2},
	{what: "rueidislock beside redislock there", section: "locks", series: ownLocks, unit: "pairs/s", side: rueidislockIt,
		beside: redislockWay},
	{what: "two PINGs beside redislock there", section: "locks", series: ownLocks, unit: "pairs/s", side: bareTrips, beside: redislockWay},
	{what: "8 processes, a section of 1 ms: owner changes beside a mutex", section: "locks", series: sectionOfOne +
		"owner changes", unit: "per s", side: coatcheck, beside: syncMutex, goal: 0.75},
	{what: "the same: the 99th percentile of waits", section: "locks", series: sectionOfOne + "p99 wait", unit: "ms", side: coatcheck,
		beside: syncMutex, goal: 1.5, most: true},
	{what: "the least there: a token in a list of Redis beside a mutex", section: "locks", series: sectionOfOne +
		"owner changes", unit: "per s", side: bareList, beside: syncMutex},
	{what: "8 processes, an empty section: owner changes beside rueidislock", section: "locks", series: emptySection,
		unit: "per s", side: coatcheck, beside: rueidislockIt, goal: 4},
	{what: "the least there: a token in a list of Redis beside rueidislock", section: "locks", series: emptySection,
		unit: "per s", side: bareList, beside: rueidislockIt},

	{what: "guarded POST, first requests, beside the handler between two PINGs, 64 connections", section: "guard",
		series: "connections: 64", unit: perSecond, side: coatcheck, beside: twoPings, goal: 1},
	{what: "the same, 256 connections", section: "guard", series: "connections: 256", unit: perSecond, side: coatcheck,
		beside: twoPings, goal: 1.2},
	{what: "the same two scripts by rueidis, without anything around them, beside two PINGs, 64 connections", section: "guard",
		series: "connections: 64", unit: perSecond, side: rueidisAuto, beside: twoPings},
	{what: "the same, 256 connections", section: "guard", series: "connections: 256", unit: perSecond, side: rueidisAuto, beside: twoPings},
	{what: "the same two scripts by go-redis's AutoPipeline, 64 connections", section: "guard", series: "connections: 64", unit: perSecond,
		side: autoPipeline, beside: twoPings},
	{what: "the same, 256 connections", section: "guard", series: "connections: 256", unit: perSecond, side: autoPipeline,
		beside: twoPings},
	{what: "replays beside the bare handler, 64 connections", section: "guard", series: "connections: 64", unit: perSecond, side: ownReplay,
		beside: unguarded, goal: 0.7},
	{what: "the same, 256 connections", section: "guard", series: "connections: 256", unit: perSecond, side: ownReplay,
		beside: unguarded, goal: 0.7},
	{what: "the least there: one shared PING in the place of the handler, beside the bare handler, 64 connections", section: "guard",
		series: "connections: 64", unit: perSecond, side: onePing, beside: unguarded},
	{what: "the same, 256 connections", section: "guard", series: "connections: 256", unit: perSecond, side: onePing, beside: unguarded},
	{what: "the same script by rueidis, without anything around it, beside the bare handler, 64 connections", section: "guard",
		series: "connections: 64", unit: perSecond, side: leastReplay, beside: unguarded},
	{what: "the same, 256 connections", section: "guard", series: "connections: 256", unit: perSecond, side: leastReplay,
		beside: unguarded},

	{what: "acquiring a worker id, in Redis, 1,024 slots", section: "slots", series: "acquire", unit: "µs", side: fewSlots,
		goal: 10, most: true},
	{what: "the same, 1,048,576 slots", section: "slots", series: "acquire", unit: "µs", side: mostSlots, goal: 10, most: true},
	{what: "acquiring a worker id, many slots beside few", section: "slots", series: "acquire", unit: "µs", side: mostSlots,
		beside: fewSlots, goal: 1.5, most: true},
	{what: "renewing a worker id, in Redis, 1,024 slots", section: "slots", series: "renew", unit: "µs", side: fewSlots,
		goal: 10, most: true},
	{what: "the same, 1,048,576 slots", section: "slots", series: "renew", unit: "µs", side: mostSlots, goal: 10, most: true},
	{what: "renewing a worker id, many slots beside few", section: "slots", series: "renew", unit: "µs", side: mostSlots, beside: fewSlots,
		goal: 1.5, most: true},

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
