package main

import (
	"bytes"
	"encoding/json"
	"math"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

func sampleTable() *table {
	return &table{
		Title: "sample", When: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC), Machine: "a machine", Rounds: 3, Seconds: 1.5,
		Columns: []string{"side", "ratio", "reads"},
		Rows:    [][]any{{"one", 1.0, 0.123}, {"two", 12.34, 1234.5}},
		Notes:   []string{"A note."},
	}
}

func TestTableAsJSONReadsBack(t *testing.T) {
	var stdout bytes.Buffer
	if err := (&output{json: true}).write(&stdout, sampleTable()); err != nil {
		t.Fatal(err)
	}
	var back table
	expect.Error(t, "reading the table as JSON", json.Unmarshal(stdout.Bytes(), &back), nil)
	expect.Equal(t, "the table read from JSON", &back, sampleTable())
}

func TestMedianAndSpread(t *testing.T) {
	for _, row := range []struct {
		numbers []float64
		median  float64
		spread  string
	}{
		{nil, 0, ""},
		{[]float64{3}, 3, "3.00–3.00"},
		{[]float64{4, 1}, 2.5, "1.00–4.00"},
		{[]float64{9, 1, 5}, 5, "1.00–9.00"},
		{[]float64{8, 1, 7, 2, 6, 3, 5, 4, 9}, 5, "3.00–7.00"},
	} {
		if m, s := median(row.numbers), spread(row.numbers); m != row.median || s != row.spread {
			t.Errorf("%v: %v and %q, want %v and %q", row.numbers, m, s, row.median, row.spread)
		}
	}
}

func TestPercentile(t *testing.T) {
	var hundred []time.Duration
	for i := range 100 {
		hundred = append(hundred, time.Duration(i+1)*time.Microsecond)
	}
	for p, want := range map[float64]float64{0: 1, 0.5: 51, 0.99: 100, 1: 100} {
		if got := percentile(hundred, p); got != want {
			t.Errorf("percentile %v: %v, want %v", p, got, want)
		}
	}
	if percentile(nil, 0.5) != 0 {
		t.Error("the percentile of nothing is something")
	}
}

func TestAnswerLength(t *testing.T) {
	for text, want := range map[string]int{
		"": 0,
		"HTTP/1.1 201 Created\r\nContent-Length: 5\r\n":                  0,
		"HTTP/1.1 201 Created\r\nContent-Length: 5\r\n\r\n":              48,
		"HTTP/1.1 201 Created\r\nContent-Length: 5\r\n\r\n{}":            48,
		"HTTP/1.1 204 No Content\r\n\r\n":                                27,
		"HTTP/1.1 201 Created\r\nContent-Length: 120\r\nDate: x\r\n\r\n": 174,
	} {
		if got := answerLength([]byte(text)); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}

func TestRatiosToNothingAreLeftOut(t *testing.T) {
	expect.Equal(t, "ratios", ratios([]float64{1, 2, 3}, []float64{2, 0, 1}), []float64{0.5, 3})
	table := &table{Columns: []string{"side", "ratio"}, Rows: [][]any{{"one", math.Inf(1)}, {"two", math.NaN()}, {"three", 3.0}}}
	table.finite()
	expect.Equal(t, "the rows", table.Rows, [][]any{{"one", "–"}, {"two", "–"}, {"three", 3.0}})
	expect.Error(t, "as JSON", table.json(&bytes.Buffer{}), nil)
}
