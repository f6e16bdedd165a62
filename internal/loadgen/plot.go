package loadgen

import (
	"errors"
	"fmt"
	"html"
	"io"
	"math"
	"path/filepath"
	"sort"
	"strings"
	"time"
)

// The sizes of a plot, in pixels. It has two charts, one above the other.
const (
	plotWidth    = 840
	chartHeight  = 340
	marginLeft   = 70
	marginRight  = 30
	marginTop    = 40
	marginBottom = 50
)

// colours of lines that differ in lightness as well, for those who see few colours.
const (
	dark   = "#1f3a93"
	middle = "#e07b00"
	light  = "#9a9a9a"
)

// ErrPlotName says that a file's name is not that of a picture in SVG.
var ErrPlotName = errors.New("a plot is an SVG picture: it is written to a file whose name ends in .svg")

// CheckPlotName reports whether a plot can be written to a file of that name.
func CheckPlotName(name string) error {
	if !strings.EqualFold(filepath.Ext(name), ".svg") {
		return ErrPlotName
	}
	return nil
}

// Plot draws the latencies over percentiles, and over time, as a picture in SVG.
func (r *Result) Plot(title string, to io.Writer) error {
	if r.Latency.N() == 0 {
		return errors.New("there is nothing to plot: no call succeeded")
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %[1]d %[2]d" font-family="sans-serif" font-size="12" fill="#333">
<rect width="100%%" height="100%%" fill="white"/>
`, plotWidth, 2*chartHeight)
	r.overPercentiles(title).draw(&b, 0)
	r.overTime().draw(&b, chartHeight)
	b.WriteString("</svg>\n")
	_, err := io.WriteString(to, b.String())
	return err
}

// chart is latencies, in milliseconds on a logarithmic axis, over something else.
type chart struct {
	title string
	over  string                  // what the horizontal axis shows
	at    func(x float64) float64 // where x is on it, from 0 to 1
	ticks []tick                  // of the horizontal axis
	lines []line
}

type tick struct {
	value float64
	label string
}

type line struct {
	name   string
	colour string
	points []point
}

type point struct{ x, y float64 }

func millis(d time.Duration) float64 { return max(float64(d), 1) / float64(time.Millisecond) }

// overPercentiles draws latencies over 1/(1-p), so that each nine has the same room.
func (r *Result) overPercentiles(title string) chart {
	most := max(float64(r.Latency.N()), 10)
	var points []point
	for step := 0.0; ; step += 0.02 { // in powers of ten
		x := math.Pow(10, step)
		if x >= most {
			break
		}
		points = append(points, point{x, millis(r.Latency.At(100 * (1 - 1/x)))})
	}
	points = append(points, point{most, millis(r.Latency.Max())})
	return chart{
		title: title, over: "share of requests that took no longer",
		at:    func(x float64) float64 { return math.Log10(x) / math.Log10(most) },
		ticks: nines(most), lines: []line{{"", dark, points}},
	}
}

// nines returns 10 as 90%, 100 as 99%, and so on.
func nines(most float64) []tick {
	ticks := []tick{{1, "0%"}, {2, "50%"}}
	for x, count := 10.0, 1; x <= most; x, count = x*10, count+1 {
		ticks = append(ticks, tick{x, fmt.Sprintf("%.*f%%", max(count-2, 0), 100-100/x)})
	}
	return ticks
}

// overTime draws each row's percentiles.
func (r *Result) overTime() chart {
	var half, high, most []point
	for _, row := range r.Rows {
		if row.Done == 0 {
			continue
		}
		x := row.End.Seconds()
		half = append(half, point{x, millis(row.P50)})
		high = append(high, point{x, millis(row.P99)})
		most = append(most, point{x, millis(row.Max)})
	}
	took := max(r.Took.Seconds(), 0.001)
	return chart{
		over: "seconds", at: func(x float64) float64 { return x / took },
		ticks: even(took), lines: []line{{"max", light, most}, {"p99", middle, high}, {"p50", dark, half}},
	}
}

// even returns at most eleven ticks from 0 on, which are 1, 2 or 5 of a power of ten apart.
func even(most float64) (ticks []tick) {
	step := math.Pow(10, math.Floor(math.Log10(most)))
	for _, part := range []float64{0.1, 0.2, 0.5} {
		if most <= 10*part*step {
			step *= part
			break
		}
	}
	for i := 0.0; i*step <= most; i++ {
		ticks = append(ticks, tick{i * step, fmt.Sprintf("%.6g", i*step)})
	}
	return ticks
}

// steps returns ticks at 1, 2 and 5 of each power of ten, from the last that is not above least to
// the first that is not below most. Where there are many only the powers of ten have labels.
func steps(least, most float64) (ticks []tick) {
	for power := math.Floor(math.Log10(least)); power <= math.Ceil(math.Log10(most)); power++ {
		for _, digit := range []float64{1, 2, 5} {
			value := digit * math.Pow(10, power)
			ticks = append(ticks, tick{value, fmt.Sprintf("%.6g", value)})
		}
	}
	first := max(sort.Search(len(ticks), func(i int) bool { return ticks[i].value > least })-1, 0)
	last := max(sort.Search(len(ticks), func(i int) bool { return ticks[i].value >= most }), first+1)
	ticks = ticks[first : last+1]
	if len(ticks) > 16 {
		for i := range ticks {
			if !strings.Contains(ticks[i].label, "1") {
				ticks[i].label = ""
			}
		}
	}
	return ticks
}

// draw draws the chart, whose upper edge is there.
func (c chart) draw(b *strings.Builder, top float64) {
	least, most := math.Inf(1), 0.0
	for _, l := range c.lines {
		for _, p := range l.points {
			least, most = min(least, p.y), max(most, p.y)
		}
	}
	levels := steps(least, most)
	least, most = levels[0].value, levels[len(levels)-1].value
	bottom := top + chartHeight - marginBottom
	x := func(of float64) float64 { return marginLeft + c.at(of)*(plotWidth-marginLeft-marginRight) }
	y := func(of float64) float64 {
		return bottom - math.Log(of/least)/math.Log(most/least)*(chartHeight-marginTop-marginBottom)
	}
	write(b, "middle", plotWidth/2, top+20, `font-size="15"`, c.title)
	write(b, "middle", plotWidth/2, bottom+40, "", c.over)
	write(b, "middle", 0, 0, fmt.Sprintf(`transform="translate(20 %.1f) rotate(-90)"`, (top+marginTop+bottom)/2), "latency, ms")
	for _, t := range c.ticks {
		rule(b, x(t.value), top+marginTop, x(t.value), bottom)
		write(b, "middle", x(t.value), bottom+18, "", t.label)
	}
	for _, t := range levels {
		rule(b, marginLeft, y(t.value), plotWidth-marginRight, y(t.value))
		write(b, "end", marginLeft-8, y(t.value)+4, "", t.label)
	}
	for i, l := range c.lines {
		points := make([]point, len(l.points))
		for i, p := range l.points {
			points[i] = point{x(p.x), y(p.y)}
		}
		l.draw(b, points)
		if l.name != "" {
			write(b, "end", plotWidth-marginRight-float64(len(c.lines)-1-i)*50, top+marginTop-10, `font-weight="bold" fill="`+l.colour+`"`, l.name)
		}
	}
}

// draw draws the line through its points, now places in the picture. A few have a dot each.
func (l line) draw(b *strings.Builder, points []point) {
	fmt.Fprintf(b, `<polyline fill="none" stroke="%s" stroke-width="2" points="`, l.colour)
	for _, p := range points {
		fmt.Fprintf(b, "%.1f,%.1f ", p.x, p.y)
	}
	b.WriteString("\"/>\n")
	if l.name == "" || len(points) >= 120 {
		return
	}
	for _, p := range points {
		fmt.Fprintf(b, `<circle cx="%.1f" cy="%.1f" r="2.5" fill="%s"/>`+"\n", p.x, p.y, l.colour)
	}
}

// rule draws a thin line between two places.
func rule(b *strings.Builder, x1, y1, x2, y2 float64) {
	fmt.Fprintf(b, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="#ddd"/>`+"\n", x1, y1, x2, y2)
}

// write writes text at a place, which is its anchor: its middle or its end.
func write(b *strings.Builder, anchor string, x, y float64, more, text string) {
	fmt.Fprintf(b, `<text text-anchor="%s" x="%.1f" y="%.1f" %s>%s</text>`+"\n", anchor, x, y, more, html.EscapeString(text))
}
