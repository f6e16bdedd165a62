package main

import (
	"bytes"
	"testing"
)

func TestIDsComparesEverySide(t *testing.T) {
	result := command(t, "ids", "-rounds", "2", "-seconds", "0.05", "-sustained", "0.05")
	values := map[string]float64{}
	for _, row := range result.Rows {
		value, _ := row[3].(float64)
		values[cell(row[0])+", "+cell(row[1])] = value
	}
	for _, side := range []string{atomicAdd, coatcheckNext, coatcheckBatch, bwmarrin} {
		if values["an id, "+side] <= 0 {
			t.Errorf("%s: got %v for an id, want more than 0", side, values["an id, "+side])
		}
	}
	for _, what := range []string{"x bwmarrin, coatcheck", "at the limit, coatcheck", "at the limit, bwmarrin"} {
		if values[what] <= 0 {
			t.Errorf("%s: got %v, want more than 0", what, values[what])
		}
	}
}

func TestIDsRefusesWhatCanNotBeMeant(t *testing.T) {
	for _, args := range [][]string{{"ids", "-rounds", "0"}, {"ids", "-seconds", "0"}, {"ids", "-sustained", "601"}} {
		var stdout, stderr bytes.Buffer
		if code := run(t.Context(), args, nil, &stdout, &stderr); code != usage || stderr.Len() == 0 {
			t.Errorf("%q: exit code %d, %q", args, code, &stderr)
		}
	}
}
