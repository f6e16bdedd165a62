//go:build check

package chaos

import (
	"fmt"
	"net/http"
	"slices"
	"time"
)

// rule is one thing that must hold whatever breaks.
type rule string

// The rules. README.md says them in words.
const (
	ruleAnswered rule = "every request is answered, unless the process that was asked is killed"
	rulePrompt   rule = "every request ends in time"
	ruleSettled  rule = "every client comes to an end"
	ruleKnown    rule = "every answer is one of the interface's"
	ruleFitting  rule = "every answer can be right for the request"
	ruleOnce     rule = "hold, and a token that Redis has lost: at most one run, and at most one effect"
	ruleTrue     rule = "an answer of the handler is that of a run that had its effect"
	ruleSame     rule = "all answers of the handler are the same"
	ruleKept     rule = "an answer that was given stays"
	ruleNothing  rule = "nothing has run, and no attempt has the claim, while clients hear only that nothing was done"
	ruleFences   rule = "takeover: no fence twice, and none smaller than one before"
	ruleNewest   rule = "takeover: what is recorded is the answer of the newest run"
)

// patience is how long a request may take, at most.
const patience = 30 * time.Second

// circumstances are what was broken, as far as it changes what must hold.
type circumstances struct {
	// Redis was away for a while: answers may have been sent before they were recorded
	redis    bool
	recorder bool // … and a process that would have recorded them later is gone as well
	// a process was paused for longer than its lease, and may do later what it was about to do
	paused  bool
	flushed bool // Redis has lost everything, and operations are known by issued tokens
	// a master that was replaced went on for a while, with what only it was told
	former bool
	whole  time.Time // when Redis was whole again
}

// violation is a rule that an operation breaks.
type violation struct {
	rule   rule
	text   string
	policy string // of the operation
}

// check finds what is wrong with the history of one operation. The answers are in the order in
// which they came.
func check(o operation, answers []answer, c circumstances) (found []violation) {
	v := verdict{operation: o, answers: answers, circumstances: c}
	v.requests()
	v.runs()
	v.kept()
	v.nothing()
	if o.policy == "takeover" {
		v.fences()
		v.newest()
	}
	return v.found
}

// verdict is one judgement.
type verdict struct {
	operation
	circumstances

	answers []answer
	found   []violation
}

func (v *verdict) faultf(is bool, rule rule, format string, args ...any) {
	if is {
		v.found = append(v.found, violation{rule, fmt.Sprintf(format, args...), v.policy})
	}
}

// requests judges each answer by itself.
func (v *verdict) requests() {
	for _, a := range v.answers {
		v.faultf(a.got.Sub(a.sent) >= patience, rulePrompt, "%v", a)
		if a.status == 0 {
			v.faultf(!a.excused, ruleAnswered, "%v", a)
			continue
		}
		status, known := statusOf[a.code]
		v.faultf(a.code != "" && (!known || status != a.status) || a.code == "" && a.status != http.StatusCreated, ruleKnown, "%v", a)
		v.faultf(known && !v.fits(a), ruleFitting, "%v", a)
	}
	v.faultf(len(v.answers) == 0 || !v.answers[len(v.answers)-1].settled(), ruleSettled, "the last answer is not the end of it")
}

// fits reports whether a refusal can be right. Each client sends what is well-formed, and always
// the same.
func (v *verdict) fits(a answer) bool {
	switch a.code {
	case inProgress, storeUnavailable, outcomeUnknown, upstreamUnavailable:
		return true
	case inDoubt:
		return v.policy == "hold"
	case superseded:
		return v.policy == "takeover"
	case tokenUnknown:
		return v.flushed
	}
	return false
}

// runs judges what the handler has done, and what it is said to have answered.
func (v *verdict) runs() {
	effects := 0
	var texts []string
	for _, r := range v.operation.runs {
		if r.effect {
			effects++
		}
		if r.ended {
			texts = append(texts, r.text)
		}
	}
	v.faultf((v.policy == "hold" || v.flushed) && (len(v.operation.runs) > 1 || effects > 1), ruleOnce, "%d runs, %d effects", len(v.operation.runs), effects)
	first := ""
	for _, a := range v.answers {
		if a.code != "" || a.status == 0 {
			continue
		}
		v.faultf(!slices.Contains(texts, a.body) || effects == 0, ruleTrue, "%v", a)
		if first == "" {
			first = a.body
		}
		v.faultf(a.body != first && !v.mayDiffer(), ruleSame, "%q, and then %v", first, a)
	}
}

// mayDiffer reports whether clients may be given two answers of the handler. Only under takeover:
// an answer that could not be recorded, since Redis was away or the process was stopped while it
// asked, is sent all the same, and as its lease had lapsed another attempt took over. What is
// recorded is judged by newest.
func (v *verdict) mayDiffer() bool { return v.policy == "takeover" && (v.redis || v.paused) }

// kept judges the replies to clients after one client has been given the answer. A request counts
// as later if it was sent when that answer was there.
func (v *verdict) kept() {
	var given *answer
	for i := range v.answers {
		if a := &v.answers[i]; a.status == http.StatusCreated && (given == nil || a.got.Before(given.got)) {
			given = a
		}
	}
	if given == nil || v.flushed {
		return
	}
	for _, a := range v.answers {
		if a.sent.After(given.got) && a.status != http.StatusCreated && a.status != 0 {
			v.faultf(!v.redis || !v.mayNotBeThereYet(a), ruleKept, "given at %v; %v", given.got.Format("05.000"), a)
		}
	}
	last := v.answers[len(v.answers)-1]
	v.faultf(last.status != http.StatusCreated && !v.recorder, ruleKept, "it does not come back: %v", last)
}

// mayNotBeThereYet reports whether an answer that a client has been given may be refused to others:
// it was sent while Redis was away, and its recording goes on.
func (v *verdict) mayNotBeThereYet(a answer) bool {
	return slices.Contains([]string{inProgress, inDoubt, superseded, storeUnavailable, outcomeUnknown}, a.code)
}

// nothing judges the answers that say that nothing was done, as long as no other came, and the one
// after them, if it was asked for when they were there: no process can have the claim then. Before
// that it may have met a claim of theirs that was given back.
func (v *verdict) nothing() {
	n := 0
	for n < len(v.answers) && slices.Contains([]string{storeUnavailable, upstreamUnavailable}, v.answers[n].code) {
		n++
	}
	if n == 0 {
		return
	}
	until := v.answers[n-1].got
	if !v.underWay(n, until) {
		for _, r := range v.operation.runs {
			v.faultf(r.began.Before(until), ruleNothing, "a run began at %v, and at %v they still heard it", r.began.Format("05.000"), until.Format("05.000"))
		}
	}
	if n == len(v.answers) {
		return
	}
	next := v.answers[n]
	met := slices.ContainsFunc(v.answers[:n], func(a answer) bool { return a.got.After(next.sent) })
	if !met && !v.underWay(n+1, next.got) {
		v.faultf(slices.Contains([]string{inProgress, inDoubt, superseded}, next.code), ruleNothing, "and then %v", next)
	}
}

// underWay reports whether one of the answers from n on is to a request that had been sent at a
// moment: it may have done what others see.
func (v *verdict) underWay(n int, at time.Time) bool {
	return slices.ContainsFunc(v.answers[min(n, len(v.answers)):], func(a answer) bool { return a.sent.Before(at) })
}

// fences judges the order of an operation's runs.
func (v *verdict) fences() {
	seen := map[int64]bool{}
	newest := int64(0)
	for _, r := range v.operation.runs {
		v.faultf(seen[r.fence] || r.fence <= 0, ruleFences, "fence %d", r.fence)
		v.faultf(r.fence < newest && !v.paused, ruleFences, "%d after %d", r.fence, newest)
		seen[r.fence] = true
		newest = max(newest, r.fence)
	}
}

// newest judges what was replayed, since that was recorded: where there are two masters for a
// while, that is known of what was asked for when Redis was whole again. Before, a repeat may be
// given what only the former master has, as it asks for no confirmation.
func (v *verdict) newest() {
	var newest *run
	for _, r := range v.operation.runs {
		if newest == nil || r.fence > newest.fence {
			newest = r
		}
	}
	for _, a := range v.answers {
		perhaps := v.former && a.sent.Before(v.whole)
		v.faultf(a.replayed && !perhaps && (newest == nil || a.body != newest.text), ruleNewest, "%v", a)
	}
}
