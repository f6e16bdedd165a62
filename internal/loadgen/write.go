package loadgen

import (
	"encoding/csv"
	"fmt"
	"io"
	"strconv"
	"time"
)

// Columns are the columns of a CSV file: times in microseconds, but for seconds since the start.
var Columns = []string{"end_s", "requests", "errors", "rate_per_s", "p50_us", "p90_us", "p99_us", "p99_9_us", "max_us"}

// WriteCSV writes the rows, with their names in front.
func (r *Result) WriteCSV(to io.Writer) error {
	out := csv.NewWriter(to)
	if err := out.Write(Columns); err != nil {
		return err
	}
	us := func(d time.Duration) string { return strconv.FormatFloat(float64(d)/1e3, 'f', 3, 64) }
	for _, row := range r.Rows {
		err := out.Write([]string{
			strconv.FormatFloat(row.End.Seconds(), 'f', 3, 64), strconv.FormatInt(row.Done, 10), strconv.FormatInt(row.Failed, 10), strconv.FormatFloat(row.Rate(), 'f', 1, 64),
			us(row.P50), us(row.P90), us(row.P99), us(row.P999), us(row.Max),
		})
		if err != nil {
			return err
		}
	}
	out.Flush()
	return out.Error()
}

// Short writes a latency for people, with three digits or so.
func Short(d time.Duration) string {
	switch {
	case d >= 10*time.Second:
		return d.Round(100 * time.Millisecond).String()
	case d >= time.Second:
		return d.Round(10 * time.Millisecond).String()
	case d >= time.Millisecond:
		return fmt.Sprintf("%.2fms", float64(d)/1e6)
	case d >= time.Microsecond:
		return fmt.Sprintf("%.1fµs", float64(d)/1e3)
	}
	return d.String()
}
