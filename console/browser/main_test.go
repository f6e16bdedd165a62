// Package browser_test has the tests of the console that drive a real browser. It is a module of
// its own, so that programs that import coatcheck do not inherit what drives the browser.
package browser_test

import (
	"flag"
	"fmt"
	"log/slog"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/coatcheck/coatcheck/redisstore"
)

// atEnd ends the browser that the tests share, if they have started one.
var atEnd = func() {}

func TestMain(m *testing.M) {
	flag.Parse()
	redisstore.LogTo(slog.New(slog.DiscardHandler))
	code := m.Run()
	atEnd()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}
