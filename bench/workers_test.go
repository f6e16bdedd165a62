package main

import "testing"

func TestEveryProcessGetsAnotherWorkerID(t *testing.T) {
	result := command(t, "workers", "-processes", "20", "-rounds", "2")
	for round, ids := range result.cells(t, "worker ids", 0) {
		if ids != 20.0 {
			t.Errorf("round %s: %v worker ids for 20 processes", round, ids)
		}
	}
}
