package main

import (
	"encoding/xml"
	"fmt"
	"slices"
	"strings"
)

// plot is what a picture shows of some samples: each side's ratio to one of them.
type plot struct{ what, unit, base string }

// The measures of a picture, in pixels.
const (
	plotWidth = 700
	barLeft   = 190
	barRoom   = 300
	rowHeight = 20
)

// draw draws plots below each other, as an SVG picture that is readable in light and in dark; "" if
// none of them has samples.
func draw(t *table, plots []plot) string {
	var body strings.Builder
	y := 0
	for _, plot := range plots {
		y = plot.draw(&body, t, y)
	}
	if y == 0 {
		return ""
	}
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %[1]d %[2]d" font-family="sans-serif" font-size="12">
<style>
.back { fill: #fff } text { fill: #24292f } .bar { fill: #9cb4d0 } .own { fill: #2f6fb5 } .half { stroke: #24292f }
@media (prefers-color-scheme: dark) { .back { fill: #0d1117 } text { fill: #e6edf3 } .bar { fill: #48566a } .own { fill: #4a8fd8 } .half { stroke: #e6edf3 } }
</style>
<rect class="back" width="100%%" height="100%%"/>
%s</svg>
`, plotWidth, y+8, &body)
}

// draw draws one plot below y, and returns where it ends.
func (p plot) draw(b *strings.Builder, t *table, y int) int {
	base := t.rounds(p.what, p.base, p.unit)
	if len(base) == 0 {
		return y
	}
	var sides []samples
	widest := 0.0
	for _, side := range t.Samples {
		if side.What == p.what && side.Unit == p.unit {
			list := ratios(side.Rounds, base)
			if len(list) == 0 {
				return y
			}
			sides = append(sides, side)
			widest = max(widest, slices.Max(list))
		}
	}
	y += rowHeight + 4
	fmt.Fprintf(b, `<text x="8" y="%d" font-weight="bold">%s: %s, beside %s</text>`+"\n", y, escaped(p.what), escaped(p.unit), escaped(p.base))
	at := func(ratio float64) float64 { return barLeft + barRoom*ratio/widest }
	for _, side := range sides {
		list := ratios(side.Rounds, base)
		low, high := half(list)
		class := "bar"
		if strings.HasPrefix(side.Side, coatcheck) || strings.HasPrefix(side.Side, "gateway") {
			class = "own"
		}
		y += rowHeight
		fmt.Fprintf(b, `<text x="%d" y="%d" text-anchor="end">%s</text>`+"\n", barLeft-6, y, escaped(side.Side))
		fmt.Fprintf(b, `<rect class="%s" x="%d" y="%d" width="%.1f" height="12"/>`+"\n", class, barLeft, y-10, max(1, at(median(list))-barLeft))
		fmt.Fprintf(b, `<line class="half" x1="%.1f" x2="%.1f" y1="%d" y2="%[3]d"/>`+"\n", at(low), at(high), y-4)
		fmt.Fprintf(b, `<text x="%.1f" y="%d">%s × (%s %s)</text>`+"\n", at(max(high, median(list)))+6, y, cell(median(list)), cell(median(side.Rounds)), escaped(p.unit))
	}
	return y + 8
}

func escaped(text string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(text)) // a Builder takes everything
	return b.String()
}
