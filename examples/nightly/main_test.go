package main

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/logtest"
)

// The test binary behaves as the job, so that a test can kill it. Its process id goes to a file.
const (
	asJob   = "NIGHTLY_TEST_AS_JOB"
	pidFile = "NIGHTLY_TEST_PID_FILE"
)

func TestMain(m *testing.M) {
	if os.Getenv(asJob) == "" {
		os.Exit(m.Run())
	}
	if name := os.Getenv(pidFile); name != "" {
		_ = os.WriteFile(name+".new", fmt.Append(nil, os.Getpid()), 0o600)
		_ = os.Rename(name+".new", name)
	}
	os.Exit(run(context.Background(), os.Args[1:], os.Getenv, os.Stdout, os.Stderr))
}

func TestJobOutsideOfOnceIsRefused(t *testing.T) {
	var stderr logtest.Text
	expect.Equal(t, "exit code", run(t.Context(), nil, func(string) string { return "" }, &logtest.Text{}, &stderr), 2)
	expect.Contains(t, "what it says", stderr.String(), "coatcheck once")
}
