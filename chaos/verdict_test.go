//go:build check

package chaos

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// recorded is a history in which everything is as it should be, for a test to change.
type recorded struct {
	operation

	answers []answer
	c       circumstances
}

var start = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// ms is a moment of a recorded history.
func ms(n int) time.Time { return start.Add(time.Duration(n) * time.Millisecond) }

func asked(from, to, status int, said string) answer {
	a := answer{operation: "o", client: "client", front: "gateway A.1", sent: ms(from), got: ms(to), status: status}
	if status >= 400 {
		a.code = said
	} else {
		a.body = said
	}
	return a
}

func replayed(from, to int, said string) answer {
	a := asked(from, to, 201, said)
	a.replayed = true
	return a
}

// held is a request under hold whose answer is asked for again.
func held() *recorded {
	return &recorded{
		operation: operation{name: "o", policy: "hold", runs: []*run{{fence: 5, began: ms(30), effect: true, ended: true, text: "done by run 1"}}},
		answers: []answer{
			asked(0, 10, 503, storeUnavailable), asked(20, 60, 201, "done by run 1"), asked(35, 40, 409, inProgress), replayed(70, 80, "done by run 1"),
		},
	}
}

// byFormerMaster is a request under takeover whose first answer only a former master had.
func byFormerMaster() *recorded {
	r := takenOver()
	r.c.redis, r.c.former, r.c.whole = true, true, ms(90)
	r.runs[0].effect, r.runs[0].ended = true, true
	r.answers[0] = asked(10, 40, 201, "done by run 1")
	r.answers[1] = replayed(50, 60, "done by run 1")
	return r
}

// takenOver is a request under takeover whose first attempt was killed.
func takenOver() *recorded {
	killed := asked(10, 40, 0, "")
	killed.excused = true
	return &recorded{
		operation: operation{name: "o", policy: "takeover", runs: []*run{
			{fence: 5, began: ms(20), text: "done by run 1"}, {fence: 9, began: ms(110), effect: true, ended: true, text: "done by run 2"},
		}},
		answers: []answer{killed, asked(50, 60, 409, inProgress), asked(100, 150, 201, "done by run 2"), replayed(160, 170, "done by run 2")},
	}
}

func TestHistoriesThatAreInOrder(t *testing.T) {
	late := held() // the owner was silent for longer than its lease, and came back
	late.answers = slices.Insert(late.answers, 3, asked(45, 50, 409, inDoubt))
	unrecorded := held() // it was sent while Redis was away
	unrecorded.c.redis = true
	unrecorded.answers = slices.Insert(unrecorded.answers, 3, asked(61, 62, 503, storeUnavailable), asked(63, 64, 409, inDoubt))
	lost := held() // … and its process was killed
	lost.c.redis, lost.c.recorder = true, true
	lost.answers[3] = asked(70, 80, 409, inDoubt)
	paused := takenOver() // the first attempt comes after the second
	paused.c.paused = true
	paused.runs[0], paused.runs[1] = paused.runs[1], paused.runs[0]
	flushed := held()
	flushed.c.flushed = true
	flushed.answers[3] = asked(70, 80, 410, tokenUnknown)
	met := held() // it met a claim that was given back, since the upstream could not be reached
	met.answers = slices.Replace(met.answers, 0, 1, asked(5, 16, 503, upstreamUnavailable), asked(2, 17, 409, inProgress))
	for name, r := range map[string]*recorded{
		"met a claim that was given back": met,
		"hold":                            held(), "takeover": takenOver(), "late owner": late, "unrecorded": unrecorded, "lost": lost, "paused": paused, "flushed": flushed, "former master": byFormerMaster(),
	} {
		if found := check(r.operation, r.answers, r.c); len(found) > 0 {
			t.Errorf("%s: found %v in a history that is in order", name, found)
		}
	}
}

// Each row puts one fault into a history that is in order.
func TestEveryViolationIsFound(t *testing.T) {
	for _, row := range []struct {
		rule rule
		what string
		of   func() *recorded
		put  func(r *recorded)
	}{
		{ruleOnce, "two runs", held, func(r *recorded) {
			r.runs = append(r.runs, &run{fence: 6, began: ms(90), text: "done by run 2"})
		}},
		{ruleOnce, "two effects", held, func(r *recorded) {
			r.runs = append(r.runs, &run{fence: 6, began: ms(90), effect: true, ended: true, text: "done by run 1"})
		}},
		{ruleOnce, "a lost token that runs again under takeover", takenOver, func(r *recorded) { r.c.flushed = true }},
		{ruleAnswered, "no answer", held, func(r *recorded) { r.answers[0] = asked(0, 10, 0, "") }},
		{rulePrompt, "an answer that comes too late", held, func(r *recorded) { r.answers[3].got = ms(40_000) }},
		{ruleSettled, "a client that never knows", held, func(r *recorded) { r.answers = r.answers[2:3] }},
		{ruleSettled, "a client without any answer", held, func(r *recorded) { r.answers = nil }},
		{ruleKnown, "a code that there is not", held, func(r *recorded) { r.answers[0].code = "try-later" }},
		{ruleKnown, "a code with another's status", held, func(r *recorded) { r.answers[0].status = 500 }},
		{ruleKnown, "another success", held, func(r *recorded) { r.answers[3].status = 200 }},
		{ruleKnown, "an internal error", held, func(r *recorded) { r.answers[0] = asked(0, 10, 500, "internal-error") }},
		{ruleFitting, "another payload", held, func(r *recorded) { r.answers[0] = asked(0, 10, 422, "idempotency-payload-mismatch") }},
		{ruleFitting, "an issued token that is unknown", held, func(r *recorded) { r.answers[0] = asked(0, 10, 410, tokenUnknown) }},
		{ruleFitting, "superseded under hold", held, func(r *recorded) { r.answers[2] = asked(35, 40, 409, superseded) }},
		{ruleFitting, "in doubt under takeover", takenOver, func(r *recorded) { r.answers[1] = asked(50, 60, 409, inDoubt) }},
		{ruleTrue, "an answer that no handler gave", held, func(r *recorded) { r.answers[3].body = "done" }},
		{ruleTrue, "an answer of a run that did not end", held, func(r *recorded) { r.runs[0].ended = false }},
		{ruleTrue, "an answer without an effect", held, func(r *recorded) { r.runs[0].effect = false }},
		{ruleSame, "two bodies", held, func(r *recorded) {
			r.runs = append(r.runs, &run{fence: 6, ended: true, text: "done by run 2"})
			r.answers[3].body = "done by run 2"
		}},
		{ruleSame, "two bodies under takeover", takenOver, func(r *recorded) {
			r.runs[0].ended = true
			r.answers[2].body = "done by run 1"
		}},
		{ruleKept, "201 and then 409", held, func(r *recorded) { r.answers[3] = asked(70, 80, 409, inDoubt) }},
		{ruleKept, "an answer that was sent before it was recorded", held, func(r *recorded) {
			r.answers = slices.Insert(r.answers, 3, asked(61, 65, 409, inProgress))
		}},
		{ruleKept, "an answer that does not come back after Redis was away", held, func(r *recorded) {
			r.c.redis = true
			r.answers[3] = asked(70, 80, 409, inDoubt)
		}},
		{ruleKept, "a token that is forgotten after Redis was away", held, func(r *recorded) {
			r.c.redis = true
			r.answers = slices.Insert(r.answers, 3, asked(61, 65, 410, tokenUnknown))
		}},
		{ruleNothing, "a run under an answer that says nothing was done", held, func(r *recorded) { r.runs[0].began = ms(5) }},
		{ruleNothing, "a claim under an answer that says nothing was done", held, func(r *recorded) {
			r.answers = slices.Insert(r.answers, 1, asked(12, 15, 409, inProgress))
		}},
		{ruleFences, "a fence that goes back", takenOver, func(r *recorded) { r.runs[0].fence, r.runs[1].fence = 9, 5 }},
		{ruleFences, "a fence twice", takenOver, func(r *recorded) {
			r.c.paused = true
			r.runs[0].fence = 9
		}},
		{ruleFences, "no fence", takenOver, func(r *recorded) { r.runs[0].fence = 0 }},
		{ruleNewest, "the answer of an older attempt is recorded", takenOver, func(r *recorded) {
			r.runs[0].ended = true
			r.answers[3].body = "done by run 1"
		}},
		{ruleNewest, "the answer of an older attempt is recorded when Redis is whole again", byFormerMaster, func(r *recorded) { r.c.whole = ms(45) }},
		{ruleNewest, "the answer of an older attempt is recorded, and no master was replaced", byFormerMaster, func(r *recorded) { r.c.former = false }},
	} {
		r := row.of()
		row.put(r)
		if found := check(r.operation, r.answers, r.c); !has(found, row.rule) {
			t.Errorf("%s: not found: %s; found: %v", row.what, row.rule, found)
		}
	}
}

// Every status that the interface has goes with its code, and only with it.
func TestEveryCodeHasItsStatus(t *testing.T) {
	for code, status := range statusOf {
		for _, other := range []int{200, 400, 404, 409, 410, 422, 429, 500, 503} {
			r := held()
			r.answers[0] = answer{sent: ms(0), got: ms(1), status: other, code: code}
			expect.Equal(t, fmt.Sprintf("%s with %d is found", code, other), has(check(r.operation, r.answers, r.c), ruleKnown), (other != status))
		}
	}
}
