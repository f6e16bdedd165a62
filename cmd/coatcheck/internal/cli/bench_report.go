package cli

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/coatcheck/coatcheck/cmd/coatcheck/internal/loadgen"
)

// benchReport answers `bench --json`.
type benchReport struct {
	What        string           `json:"what"`
	At          string           `json:"at"`
	Concurrency int64            `json:"concurrency"`
	Names       int64            `json:"keys"`
	Rate        float64          `json:"rate_per_s,omitempty"` // as asked for; 0 = a closed loop
	Started     time.Time        `json:"started"`
	Took        float64          `json:"took_ms"`
	Interrupted bool             `json:"interrupted,omitempty"`
	Requests    int64            `json:"requests"` // that succeeded
	Failed      int64            `json:"failed"`
	Errors      map[string]int64 `json:"errors"` // the failed ones by their codes
	Unsent      int64            `json:"unsent,omitempty"`
	Throughput  float64          `json:"throughput_per_s"`
	Latency     benchLatencies   `json:"latency_us"`
	Failures    *benchLatencies  `json:"failure_latency_us,omitempty"`
	Delay       *benchLatencies  `json:"delay_us,omitempty"` // open loop: how late calls began
	Left        string           `json:"left,omitempty"`     // what stays behind

	result *loadgen.Result
}

// benchLatencies are microseconds.
type benchLatencies struct {
	Mean  float64 `json:"mean"`
	P50   float64 `json:"p50"`
	P75   float64 `json:"p75"`
	P90   float64 `json:"p90"`
	P95   float64 `json:"p95"`
	P99   float64 `json:"p99"`
	P999  float64 `json:"p99_9"`
	P9999 float64 `json:"p99_99"`
	Max   float64 `json:"max"`
}

func latenciesOf(l loadgen.Latencies) benchLatencies {
	us := func(d time.Duration) float64 { return math.Round(float64(d)) / 1000 }
	return benchLatencies{
		us(l.Mean()), us(l.At(50)), us(l.At(75)), us(l.At(90)), us(l.At(95)), us(l.At(99)), us(l.At(99.9)), us(l.At(99.99)), us(l.Max()),
	}
}

func reportOf(b *benching, at string, r *loadgen.Result) benchReport {
	report := benchReport{
		What: b.what, At: at, Concurrency: b.concurrency, Names: b.names, Rate: r.Rate, Started: r.Started.UTC().Truncate(time.Millisecond),
		Took: float64(r.Took.Milliseconds()), Interrupted: r.Interrupted,
		Requests: r.Done, Failed: r.Failed, Errors: r.Errors, Unsent: r.Unsent, Throughput: math.Round(r.Throughput()*10) / 10,
		Latency: latenciesOf(r.Latency), result: r,
	}
	if r.Failed > 0 {
		failures := latenciesOf(r.Failures)
		report.Failures = &failures
	}
	if r.Rate > 0 {
		delay := latenciesOf(r.Delay)
		report.Delay = &delay
	}
	return report
}

func progressLine(what string, row loadgen.Row) string {
	return fmt.Sprintf("%s  %4.0fs  %9s/s  p50 %-8s p99 %-8s %d errors", what, row.End.Seconds(), count(row.Rate()), loadgen.Short(row.P50),
		loadgen.Short(row.P99), row.AllFailed)
}

// count writes a number with commas between thousands.
func count(n float64) string {
	digits := fmt.Sprintf("%.0f", n)
	if n < 100 {
		return fmt.Sprintf("%.1f", n)
	}
	for at := len(digits) - 3; at > 0; at -= 3 {
		digits = digits[:at] + "," + digits[at:]
	}
	return digits
}

func (r benchReport) load() string {
	callers := fmt.Sprintf("%d callers", r.Concurrency)
	if r.Rate > 0 {
		return fmt.Sprintf("%s/s, open loop, %s", count(r.Rate), callers)
	}
	return "closed loop, " + callers
}

func (r benchReport) people() string {
	var text strings.Builder
	ended := ""
	if r.Interrupted {
		ended = ", ended early"
	}
	fmt.Fprintf(&text, "%s at %s: %s, %d keys, %s%s\n\n", r.What, r.At, r.load(), r.Names,
		loadgen.Short(time.Duration(r.Took)*time.Millisecond), ended)
	fmt.Fprintf(&text, "requests     %d\n", r.Requests)
	fmt.Fprintf(&text, "throughput   %s/s\n", count(r.Throughput))
	for _, percent := range []float64{50, 75, 90, 95, 99, 99.9} {
		fmt.Fprintf(&text, "p%-11g %s\n", percent, loadgen.Short(r.result.Latency.At(percent)))
	}
	fmt.Fprintf(&text, "max          %s\n", loadgen.Short(r.result.Latency.Max()))
	fmt.Fprintf(&text, "errors       %d\n", r.Failed)
	for _, code := range r.result.Codes() {
		fmt.Fprintf(&text, "             %d %s: %v\n", r.Errors[code], code, r.result.First[code])
	}
	if r.Failures != nil {
		fmt.Fprintf(&text, "             they took p50 %s, p99 %s, and are not in the percentiles above\n", fromUS(r.Failures.P50),
			fromUS(r.Failures.P99))
	}
	r.explain(&text)
	return text.String()
}

func fromUS(us float64) string { return loadgen.Short(time.Duration(us * 1000)) }

func (r benchReport) explain(text *strings.Builder) {
	fmt.Fprintln(text)
	if r.Rate == 0 {
		fmt.Fprintln(text, "A closed loop: while a call stalls, its caller sends no other, so that few samples show it. --rate measures "+
			"what would have waited.")
	} else {
		fmt.Fprintf(text, "Latencies count from the moment that each call was meant for, so that waiting behind a stall is in them. "+
			"Calls were begun p50 %s, p99 %s, at most %s later than meant.\n",
			fromUS(r.Delay.P50), fromUS(r.Delay.P99), fromUS(r.Delay.Max))
	}
	if r.Unsent > 0 {
		fmt.Fprintf(text, "%d calls that were meant were never sent: the rate is more than could be done, and the latencies of those "+
			"would have been longer than all.\n", r.Unsent)
	}
	switch {
	case r.Left == staysAnswers:
		fmt.Fprintf(text, "Left behind: %s.\n", r.Left)
	case r.Left != "":
		fmt.Fprintf(text, "Left behind: %s. To remove them: coatcheck bench clean --redis URL\n", r.Left)
	}
}
