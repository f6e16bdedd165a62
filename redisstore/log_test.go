package redisstore_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/redisstore"
)

// plainProgram has the test binary be a program that opens a store of a server that is away, and
// sets no logger.
const plainProgram = "COATCHECK_TEST_PLAIN_PROGRAM"

func openWithoutALogger() {
	store, err := redisstore.Open(context.Background(), "redis://127.0.0.1:1")
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	defer store.Close()
	fmt.Println(store.Ping(context.Background()) != nil)
}

func TestStoreWithoutALoggerWritesNothing(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	expect.NoError(t, "os.Executable", err)
	program := exec.CommandContext(t.Context(), self)
	program.Env = append(os.Environ(), plainProgram+"=1")
	out, err := program.CombinedOutput()
	if err != nil {
		t.Fatalf("the program: %v: %s", err, out)
	}
	expect.Equal(t, "what a program writes whose Redis is away", string(out), "true\n")
}
