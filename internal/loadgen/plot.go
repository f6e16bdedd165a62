package loadgen

import (
	"errors"
	"fmt"
	"image/color"
	"io"
	"math"
	"path/filepath"
	"strings"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"
)

const (
	plotWidth  = 22 * vg.Centimeter
	plotHeight = 18 * vg.Centimeter
)

// colours of lines that differ in lightness as well, for those who see few colours.
var (
	dark   = color.RGBA{R: 0x1f, G: 0x3a, B: 0x93, A: 0xff}
	middle = color.RGBA{R: 0xe0, G: 0x7b, B: 0x00, A: 0xff}
	light  = color.RGBA{R: 0x9a, G: 0x9a, B: 0x9a, A: 0xff}
)

// ErrPlotName says that a file's name does not tell what kind of picture it is to be.
var ErrPlotName = errors.New("a plot is written to a file whose name ends in .svg or .png")

// CheckPlotName reports whether a plot can be written to a file of that name.
func CheckPlotName(name string) error {
	switch strings.ToLower(filepath.Ext(name)) {
	case ".svg", ".png":
		return nil
	}
	return ErrPlotName
}

// Plot draws the latencies over percentiles, and over time, as the file's name says: .svg or .png.
func (r *Result) Plot(name, title string, to io.Writer) error {
	if err := CheckPlotName(name); err != nil {
		return err
	}
	if r.Latency.N() == 0 {
		return errors.New("there is nothing to plot: no call succeeded")
	}
	above, err := r.overPercentiles(title)
	if err != nil {
		return err
	}
	below, err := r.overTime()
	if err != nil {
		return err
	}
	plots := [][]*plot.Plot{{above}, {below}}
	paint := func(canvas vg.CanvasSizer) {
		for i, row := range plot.Align(plots, draw.Tiles{Rows: 2, Cols: 1, PadY: 5 * vg.Millimeter, PadTop: vg.Millimeter, PadBottom: vg.Millimeter, PadLeft: vg.Millimeter, PadRight: 5 * vg.Millimeter}, draw.New(canvas)) {
			plots[i][0].Draw(row[0])
		}
	}
	if strings.EqualFold(filepath.Ext(name), ".svg") {
		canvas := vgsvg.New(plotWidth, plotHeight)
		paint(canvas)
		_, err = canvas.WriteTo(to)
		return err
	}
	canvas := vgimg.PngCanvas{Canvas: vgimg.New(plotWidth, plotHeight)}
	paint(canvas)
	_, err = canvas.WriteTo(to)
	return err
}

func millis(d time.Duration) float64 { return max(float64(d), 1) / float64(time.Millisecond) }

// overPercentiles draws latencies over 1/(1-p), so that each nine has the same room.
func (r *Result) overPercentiles(title string) (*plot.Plot, error) {
	p := plot.New()
	p.Title.Text = title
	p.X.Label.Text = "share of requests that took no longer"
	p.Y.Label.Text = "latency, ms"
	most := max(float64(r.Latency.N()), 10)
	var points plotter.XYs
	for step := 0.0; ; step += 0.02 { // in powers of ten
		x := math.Pow(10, step)
		if x >= most {
			break
		}
		points = append(points, plotter.XY{X: x, Y: millis(r.Latency.At(100 * (1 - 1/x)))})
	}
	points = append(points, plotter.XY{X: most, Y: millis(r.Latency.Max())})
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, nines{}
	p.X.Min, p.X.Max = 1, most
	return p, draws(p, line{"", dark, points})
}

// nines writes 10 as 90%, 100 as 99%, and so on.
type nines struct{}

// Ticks implements plot.Ticker.
func (nines) Ticks(_, most float64) (ticks []plot.Tick) {
	ticks = []plot.Tick{{Value: 1, Label: "0%"}, {Value: 2, Label: "50%"}}
	for x, label := 10.0, "90%"; x <= most; x *= 10 {
		ticks = append(ticks, plot.Tick{Value: x, Label: label})
		switch label {
		case "90%":
			label = "99%"
		case "99%":
			label = "99.9%"
		default:
			label = strings.TrimSuffix(label, "%") + "9%"
		}
	}
	return ticks
}

// overTime draws each row's percentiles.
func (r *Result) overTime() (*plot.Plot, error) {
	p := plot.New()
	p.X.Label.Text = "seconds"
	p.Y.Label.Text = "latency, ms"
	p.Legend.Top = true
	var half, high, most plotter.XYs
	for _, row := range r.Rows {
		if row.Done == 0 {
			continue
		}
		x := row.End.Seconds()
		half = append(half, plotter.XY{X: x, Y: millis(row.P50)})
		high = append(high, plotter.XY{X: x, Y: millis(row.P99)})
		most = append(most, plotter.XY{X: x, Y: millis(row.Max)})
	}
	p.X.Min, p.X.Max = 0, max(r.Took.Seconds(), 0.001)
	return p, draws(p, line{"max", light, most}, line{"p99", middle, high}, line{"p50", dark, half})
}

// line is a row of points with its name.
type line struct {
	name   string
	colour color.Color
	points plotter.XYs
}

// draws adds lines on a logarithmic axis that has room for all of them.
func draws(p *plot.Plot, lines ...line) error {
	left, right := p.X.Min, p.X.Max
	p.Add(plotter.NewGrid())
	least, most := math.Inf(1), 0.0
	for _, l := range lines {
		drawn, dots, err := plotter.NewLinePoints(l.points)
		if err != nil {
			return fmt.Errorf("plot: %w", err)
		}
		drawn.Color, drawn.Width = l.colour, vg.Points(1.5)
		dots.Color, dots.Radius = l.colour, vg.Points(1.5)
		p.Add(drawn)
		if len(l.points) < 120 && l.name != "" {
			p.Add(dots)
		}
		if l.name != "" {
			p.Legend.Add(l.name, drawn)
		}
		for _, point := range l.points {
			least, most = min(least, point.Y), max(most, point.Y)
		}
	}
	p.X.Min, p.X.Max = left, right
	p.Y.Min, p.Y.Max = least/1.3, most*1.3
	if p.Legend.Top {
		p.Y.Max = most * 3 // room for the legend
	}
	p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, steps{}
	return nil
}

// steps are 1, 2 and 5 of each power of ten.
type steps struct{}

// Ticks implements plot.Ticker.
func (steps) Ticks(least, most float64) (ticks []plot.Tick) {
	for power := math.Floor(math.Log10(least)); power <= math.Ceil(math.Log10(most)); power++ {
		for _, digit := range []float64{1, 2, 5} {
			if value := digit * math.Pow(10, power); value >= least && value <= most {
				ticks = append(ticks, plot.Tick{Value: value, Label: fmt.Sprintf("%g", math.Round(value*1e6)/1e6)})
			}
		}
	}
	return ticks
}
