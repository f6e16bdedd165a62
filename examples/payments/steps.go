package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
)

// step is a point of a charge at which the tests, and a curious reader, let the process die.
type step string

const (
	beforeCharge  step = "before-charge"  // the claim is made, nothing is written
	inTransaction step = "in-transaction" // all is written, nothing is committed
	afterCommit   step = "after-commit"   // committed, but neither recorded in Redis nor answered
)

var steps = []step{beforeCharge, inTransaction, afterCommit}

// parseStep reads --crash-at; "" is no step at all.
func parseStep(text string) (step, error) {
	if s := step(text); text == "" || slices.Contains(steps, s) {
		return s, nil
	}
	var names []string
	for _, s := range steps {
		names = append(names, string(s))
	}
	return "", fmt.Errorf("--crash-at %q: %s", text, strings.Join(names, ", "))
}

// crashAt returns a function that ends the process at one step as kill -9 does: nothing is cleaned
// up, and no client is told.
func crashAt(doomed step) func(step) {
	return func(now step) {
		if now != doomed {
			return
		}
		if self, err := os.FindProcess(os.Getpid()); err == nil && self.Kill() == nil {
			select {} // the signal is on its way
		}
		os.Exit(1)
	}
}
