package main

import (
	"flag"
	"testing"

	"go.uber.org/goleak"
)

// These tests wait more than they work: more of them than there are processors may run at once.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "4"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}
