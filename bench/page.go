package main

import (
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

// pageHead is what stands on every page before what was measured.
const pageHead = `# Benchmarks

How many a second and how long, beside what others would pick; then [how near that is to the least
that is possible](#targets), then all figures. Rely on the ratios: other figures are those of one
machine on one day, on which Redis, service and clients shared the processors.

`

// pageMethod says how it was measured.
const pageMethod = `## How it is measured

By one command, about a quarter of an hour on two quiet processors:

` + "```sh" + `
cd bench && go run . all -page ../docs/benchmarks.md
` + "```" + `

Nothing here is written by hand but the goals, and why some are not met. In each round all sides are
measured once, in turns, and a ratio is taken within its round; what stands here is the median of
the rounds, with the middle half beside it. [bench](../bench/README.md) says what each side is.

`

// targetsHead says what the goals are.
const targetsHead = `## Targets

A goal is at most 15 % above the least that is possible in the same run: a bare connection, two
PINGs, a script or a handler that does the same work and guards nothing. Rows without a goal show
what a part costs.

`

// page is the whole page.
func (r *report) page(asked string, figures []figure) string {
	var text strings.Builder
	text.WriteString(pageHead + asked + "\n" + targetsHead + targetsText(figures) + whyNot(figures) + "\n" + pageMethod)
	when := fmt.Sprintf("Measured on %s, in %v, on %s. The load average of a minute was %s at the begin and %s at the end; what this "+
		"itself runs counts in it. Beside: %s.",
		r.When.Format("2006-01-02 at 15:04 UTC"), time.Duration(r.Took)*time.Second, r.Machine, r.Load[0], r.Load[1],
		strings.Join(r.Versions, ", "))
	text.WriteString(wrapped(when) + "\n")
	if r.Quick {
		text.WriteString(wrapped("**This was a quick look** (`-quick`): one short round of each, so no figure here is one to rely on.") +
			"\n")
	}
	for _, step := range steps {
		at := slices.IndexFunc(r.Sections, func(s section) bool { return s.Name == step.name })
		if at < 0 {
			text.WriteString("\n## " + step.name + "\n\n" + wrapped(step.about+" "+notInThisRun) + "\n")
		} else {
			text.WriteString(r.Sections[at].text())
		}
	}
	return text.String()
}

// notInThisRun is all that the page has of a section that was not chosen, or is newer than the run.
const notInThisRun = "Not measured in this run."

// text is a section of the page.
func (s *section) text() string {
	var text strings.Builder
	fmt.Fprintf(&text, "\n## %s\n\n", s.Name)
	for _, step := range steps {
		if step.name == s.Name {
			text.WriteString(wrapped(step.about+" "+s.measured()) + "\n\n")
		}
	}
	if s.Fault != "" {
		return text.String() + "**Not measured**, it failed:\n\n```\n" + s.Fault + "\n```\n"
	}
	text.WriteString(s.Table.body())
	return text.String()
}

// measured is how the section was measured.
func (s *section) measured() string {
	how := fmt.Sprintf("Rounds: %d", s.Table.Rounds)
	if s.Table.Seconds > 0 {
		how += fmt.Sprintf(" of %g s each", s.Table.Seconds)
	}
	return fmt.Sprintf("%s, %.0f s in all: `go run . %s`.", how, s.Took, s.Command)
}

// model is the name of the machine's processors, in parentheses, where Linux knows it.
func model() string {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(text)) {
		if name, value, found := strings.Cut(line, ":"); found && strings.TrimSpace(name) == "model name" {
			return " (" + strings.TrimSpace(value) + ")"
		}
	}
	return ""
}

// peers are the modules that coatcheck is measured beside.
var peers = []string{
	"github.com/redis/go-redis/v9", "github.com/redis/rueidis", "github.com/bsm/redislock", "github.com/labstack/echo/v4",
	"github.com/bwmarrin/snowflake", "github.com/go-redis/redis_rate/v10",
}

// versions are those of the peers.
func versions() (list []string) {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return nil
	}
	for _, peer := range peers {
		for _, module := range info.Deps {
			if module.Path == peer {
				list = append(list, strings.TrimPrefix(module.Path, "github.com/")+" "+module.Version)
			}
		}
	}
	return list
}
