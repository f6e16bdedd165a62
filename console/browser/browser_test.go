package browser_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

var update = flag.Bool("update", false, "write the pictures of docs/console anew")

// chromium is one browser for all tests; each has tabs of its own in it, which share nothing with
// those of others.
var chromium struct {
	once sync.Once
	ctx  context.Context
	err  error
}

// browser starts the browser, if no test has yet.
func browser(t *testing.T) context.Context {
	t.Helper()
	chromium.once.Do(startBrowser)
	if chromium.err != nil {
		t.Fatalf("starting Chromium: %v", chromium.err)
	}
	return chromium.ctx
}

func startBrowser() {
	path, err := findBrowser()
	if err != nil {
		chromium.err = err
		return
	}
	folder, err := os.MkdirTemp("", "coatcheck-browser")
	if err != nil {
		chromium.err = err
		return
	}
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]),
		chromedp.ExecPath(path), chromedp.UserDataDir(folder), chromedp.WindowSize(1280, 900),
		chromedp.Flag("disable-gpu", true), chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true),
		chromedp.Flag("hide-scrollbars", true), chromedp.Flag("lang", "en"),
		chromedp.Flag("host-resolver-rules", "MAP "+evilHost+" 127.0.0.1"),
	)
	if os.Getuid() == 0 {
		options = append(options, chromedp.NoSandbox) // its sandbox does not run as root
	}
	allocator, endAllocator := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, cancel := chromedp.NewContext(allocator)
	chromium.ctx = ctx
	atEnd = func() {
		_ = chromedp.Cancel(ctx) // waits until the browser has ended
		cancel()
		endAllocator()
		_ = os.RemoveAll(folder)
	}
	start := make(chan error, 1)
	go func() { start <- chromedp.Do(ctx) }()
	select {
	case chromium.err = <-start:
	case <-time.After(patience):
		chromium.err = fmt.Errorf("%s did not start within %v", path, patience)
	}
}

// findBrowser finds a browser. Without one the tests fail: make deps installs it.
func findBrowser() (string, error) {
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("no chromium and no google-chrome in PATH: make deps installs one")
}
