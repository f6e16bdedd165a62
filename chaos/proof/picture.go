package main

import (
	"encoding/xml"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/coatcheck/coatcheck/chaos/evidence"
)

// The measures of the picture, in pixels.
const (
	width    = 760
	laneLeft = 90
	laneHigh = 26
	top      = 56
)

const style = `.back { fill: #fff } text { fill: #24292f } .lane, .tick { stroke: #d0d7de } .asks { fill: #d0d7de }
.holds { fill: #2f6fb5 } .wrong { fill: #cf222e }
.fault { fill: #bf8700; opacity: .18 } .struck { stroke: #bf8700; stroke-width: 2 } .due { fill: #9a6700 }
@media (prefers-color-scheme: dark) { .back { fill: #0d1117 } text { fill: #e6edf3 } .lane, .tick { stroke: #30363d }
.asks { fill: #48566a } .holds { fill: #4a8fd8 }
.wrong { fill: #f85149 } .fault { fill: #d29922 } .struck { stroke: #d29922 } .due { fill: #d29922 } }`

// draw draws a violation: a lane for each client, in the order in which they first come, and the
// fault as a line, with its duration as an area in the background.
func draw(t *evidence.Timeline) string {
	var whos []string
	from, to := t.Spans[0].From, t.Spans[0].To
	for _, span := range t.Spans {
		if !slices.Contains(whos, span.Who) {
			whos = append(whos, span.Who)
		}
		from, to = earliest(from, span.From), latest(to, span.To)
	}
	from = earliest(from, t.Struck)
	bottom := top + laneHigh*len(whos)
	at := func(moment time.Time) float64 {
		return laneLeft + (width-laneLeft-16)*min(max(moment.Sub(from).Seconds()/to.Sub(from).Seconds(), 0), 1)
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<text x="8" y="18" font-weight="bold">%s: %s</text>`+"\n", escaped(strings.Trim(t.Who, "`")), escaped(t.Title))
	fmt.Fprintf(&b, `<rect class="fault" x="%.1f" y="%d" width="%.1f" height="%d"/>`+"\n", at(t.Struck), top-6,
		at(t.Mended)-at(t.Struck), bottom-top+6)
	fmt.Fprintf(&b, `<line class="struck" x1="%.1f" x2="%[1]f" y1="%d" y2="%d"/>`+"\n", at(t.Struck), top-6, bottom)
	fmt.Fprintf(&b, `<text class="due" x="%.1f" y="%d">%s</text>`+"\n", min(at(t.Struck), width-320), top-12, escaped(t.Fault))
	for i, who := range whos {
		y := top + laneHigh*i
		fmt.Fprintf(&b, `<line class="lane" x1="%d" x2="%d" y1="%d" y2="%[3]d"/>`+"\n", laneLeft, width-16, y+laneHigh-3)
		fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="end">%s</text>`+"\n", laneLeft-8, y+16, escaped(who))
		for _, span := range t.Spans {
			if span.Who == who {
				bar(&b, span, from, at, y)
			}
		}
	}
	ticks(&b, to.Sub(from), bottom)
	fmt.Fprintf(&b, `<text x="%d" y="%d">light: asks, from the call to its return; dark: is told that it holds; red: two at once</text>`+
		"\n", laneLeft, bottom+36)
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %[1]d %[2]d"
font-family="sans-serif" font-size="12">
<style>
%s
</style>
<rect class="back" width="100%%" height="100%%"/>
%s</svg>
`, width, bottom+46, style, &b)
}

// bar is one span in its lane.
func bar(b *strings.Builder, span evidence.Span, from time.Time, at func(time.Time) float64, y int) {
	class, high := "holds", 16
	switch {
	case span.Asks:
		class, high = "asks", 6
	case span.Wrong:
		class = "wrong"
	}
	fmt.Fprintf(b, `<rect class="%s" x="%.1f" y="%d" width="%.1f" height="%d"><title>%s %s, %d to %d ms</title></rect>`+"\n", class,
		at(span.From), y+4+(16-high)/2,
		max(1, at(span.To)-at(span.From)), high, escaped(span.Who), escaped(span.What), span.From.Sub(from).Milliseconds(),
		span.To.Sub(from).Milliseconds())
}

// ticks is the scale, from the first moment of the picture on.
func ticks(b *strings.Builder, all time.Duration, y int) {
	const parts = 6
	for i := range parts + 1 {
		x := laneLeft + float64(width-laneLeft-16)*float64(i)/parts
		fmt.Fprintf(b, `<line class="tick" x1="%.1f" x2="%[1]f" y1="%d" y2="%d"/>`+"\n", x, y, y+4)
		fmt.Fprintf(b, `<text x="%.1f" y="%d" text-anchor="%s">%d ms</text>`+"\n", x, y+18,
			map[bool]string{true: "end", false: "middle"}[i == parts], (all * time.Duration(i) / parts).Milliseconds())
	}
}

func earliest(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func escaped(text string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(text)) // a Builder takes everything
	return b.String()
}
