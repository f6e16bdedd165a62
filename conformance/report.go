package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

type outcome struct {
	Target        string   `json:"target"`
	OK            bool     `json:"ok"` // the exit code is 0
	Passed        int      `json:"passed"`
	Failed        int      `json:"failed"`
	NotApplicable int      `json:"not_applicable"`
	Strict        bool     `json:"strict"`
	Checks        []result `json:"checks"`
}

// report runs the checks and tells of each once it is done: on stdout, or with JSON on stderr.
func (s *suite) report(ctx context.Context, chosen []check, stdout, stderr io.Writer) int {
	lines := stdout
	if s.o.json {
		lines = stderr
	}
	out := outcome{Target: s.o.method + " " + s.o.at(s.o.path), Strict: s.o.strict, Checks: []result{}}
	fmt.Fprintf(lines, "%s, %d checks\n\n", out.Target, len(chosen))
	for _, c := range chosen {
		if ctx.Err() != nil {
			break
		}
		r := s.judge(ctx, c)
		out.add(r)
		fmt.Fprint(lines, r.text())
	}
	out.OK = out.Failed == 0 && (out.NotApplicable == 0 || !s.o.strict) && len(out.Checks) == len(chosen)
	fmt.Fprint(lines, out.summary(len(chosen)))
	if s.o.json {
		encoder := json.NewEncoder(stdout)
		encoder.SetIndent("", "  ")
		encoder.SetEscapeHTML(false)
		if err := encoder.Encode(out); err != nil {
			return failed
		}
	}
	if out.OK {
		return allPassed
	}
	return failed
}

func (o *outcome) add(r result) {
	o.Checks = append(o.Checks, r)
	switch r.Verdict {
	case pass:
		o.Passed++
	case na:
		o.NotApplicable++
	default:
		o.Failed++
	}
}

func (o *outcome) summary(chosen int) string {
	text := fmt.Sprintf("\n%d passed, %d failed, %d not applicable", o.Passed, o.Failed, o.NotApplicable)
	if o.Strict && o.NotApplicable > 0 {
		text += ", which counts as failed (-strict)"
	}
	if left := chosen - len(o.Checks); left > 0 {
		text += fmt.Sprintf(", %d not looked at: interrupted", left)
	}
	return text + "\n"
}

// text is a row of the table, with what was wrong in the lines below.
func (r result) text() string {
	word := map[verdict]string{pass: "PASS", fails: "FAIL", na: "n/a"}[r.Verdict]
	var b strings.Builder
	fmt.Fprintf(&b, "%-4s  %-7s  %-20s  %s\n", word, r.Level, r.Name, r.Requirement)
	for _, line := range []struct{ name, text string }{{"reason", r.Reason}, {"sent", r.Sent}, {"came", r.Came}, {"expected", r.Expected}} {
		if line.text != "" {
			fmt.Fprintf(&b, "%15s%-8s  %s\n", "", line.name, line.text)
		}
	}
	return b.String()
}

func list(w io.Writer, chosen []check) {
	for _, c := range chosen {
		fmt.Fprintf(w, "%-7s  %-20s  %s\n", c.level, c.name, c.requirement)
		if flags := c.missing(&options{}); flags != "" {
			fmt.Fprintf(w, "%31sneeds %s\n", "", flags)
		}
	}
}
