package browser_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/coatcheck/coatcheck/server"
)

func TestColoursFollowTheSystemOrTheSwitch(t *testing.T) {
	s := serve(t, server.Config{})
	b := open(t, s.page("counters"))
	ground := func(want string) {
		t.Helper()
		b.until("the ground is "+want, fmt.Sprintf("getComputedStyle(document.body).backgroundColor === %s", quote(want)))
	}
	const light, dark = "rgb(255, 255, 255)", "rgb(16, 21, 27)"
	b.prefers("light")
	ground(light)
	b.prefers("dark")
	ground(dark)
	choose := func(value string) {
		eval[bool](b, fmt.Sprintf("(() => { const theme = document.getElementById('theme'); theme.value = %s; theme.dispatchEvent(new Event('change')); return true })()", quote(value)))
	}
	choose("light")
	ground(light)
	b.do(chromedp.Reload())
	ground(light)
	b.prefers("light")
	choose("dark")
	ground(dark)
	choose("")
	ground(light)
}

func TestKeyboardReachesEverything(t *testing.T) {
	s := serve(t, server.Config{})
	s.send(200, "POST", "/incr/orders", "")
	b := open(t, s.page("counters"))
	b.shows("tbody", "orders")
	focused := func() string {
		return eval[string](b, "document.activeElement.getAttribute('aria-label') ?? document.activeElement.innerText ?? ''")
	}
	b.press("\t")
	if got := focused(); got != "Skip to the content" {
		t.Errorf("the first stop is %q", got)
	}
	if eval[bool](b, "document.activeElement.getBoundingClientRect().left < 0 || getComputedStyle(document.activeElement).outlineStyle === 'none'") {
		t.Error("whoever is there does not see it")
	}
	b.press("\r")
	if got := eval[string](b, "document.activeElement.id"); got != "main" {
		t.Errorf("it skips to %q", got)
	}
	seen := map[string]bool{}
	for range 30 {
		b.press("\t")
		seen[focused()] = true
	}
	if !seen["INCR orders"] {
		t.Errorf("%v: the keyboard does not get to the button", seen)
	}
	eval[bool](b, "(document.querySelector(\"button[aria-label='INCR orders']\").focus(), true)")
	b.press("\r")
	b.shows("#said", "orders: 2 is yours")
	b.until("the focus stays, though the table is filled anew", "document.activeElement.getAttribute('aria-label') === 'INCR orders'")
	b.view("locks", "Locks")
	b.until("a new view is read from its heading on", "document.activeElement.tagName === 'H1'")
}

// The accessibility checker, a package of npm, which is fetched once and then kept beside the
// caches of Go.
const (
	axe    = "axe-core-4.14.1"
	axeSum = "FHfa+lmNjQZfJz1q8wKqIDwC6DExcHt/pkjNQb09a3NPjCKg2rhu5qb2S4r76ASyFNNtuFooJpZe37OgudVGtQ=="
)

func axeScript(t *testing.T) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatalf("the folder for what is fetched: %v", err)
	}
	kept := filepath.Join(cache, "coatcheck-tests", axe+".tgz")
	packed, err := os.ReadFile(kept)
	if err != nil || !isAxe(packed) {
		packed = fetchAxe(t)
		if err := errors.Join(os.MkdirAll(filepath.Dir(kept), 0o700), os.WriteFile(kept, packed, 0o600)); err != nil {
			t.Logf("it is fetched again the next time: %v", err)
		}
	}
	unpacked, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatalf("unpacking axe: %v", err)
	}
	for files := tar.NewReader(unpacked); ; {
		file, err := files.Next()
		if err != nil {
			t.Fatalf("looking for axe.min.js in its package: %v", err)
		}
		if file.Name == "package/axe.min.js" {
			script, err := io.ReadAll(files)
			if err != nil {
				t.Fatalf("reading axe.min.js: %v", err)
			}
			return string(script)
		}
	}
}

func isAxe(packed []byte) bool {
	sum := sha512.Sum512(packed)
	return base64.StdEncoding.EncodeToString(sum[:]) == axeSum
}

func fetchAxe(t *testing.T) []byte {
	t.Helper()
	folder := t.TempDir()
	command := exec.Command("npm", "pack", "--silent", strings.Replace(axe, "core-", "core@", 1))
	command.Dir = folder
	if output, err := command.CombinedOutput(); err != nil {
		t.Fatalf("npm pack: %v: %s", err, output)
	}
	packed, err := os.ReadFile(filepath.Join(folder, axe+".tgz"))
	if err != nil || !isAxe(packed) {
		t.Fatalf("what npm has fetched is not what these tests know: %v", err)
	}
	return packed
}

// Every view is looked at in light and in dark, wide and narrow.
func TestNoViewHasAFaultOfAccessibility(t *testing.T) {
	script := axeScript(t)
	s := serve(t, server.Config{})
	s.manyInDoubt("outage", 1)
	lively(s) // after it, since it leaves one that comes to be in doubt at any time
	b := open(t, s.page("counters"))
	b.shows("tbody", "orders")
	eval[bool](b, script+"; true")
	for _, scheme := range []string{"light", "dark"} {
		b.prefers(scheme)
		for _, width := range []int64{1280, 390} {
			b.size(width, 844)
			for _, view := range views {
				b.view(view.path, view.heading)
				b.shows("main", view.part)
				view.do(b)
				b.faultless(fmt.Sprintf("%s %s at %d", scheme, view.path, width))
			}
		}
		b.view("nothing", "There is no such view")
		b.faultless(scheme + " without a view")
		b.view("locks/nightly", "Lock nightly")
		b.click("main button.danger")
		b.faultless(scheme + " dialog")
		b.press("\x1b")
		b.asksNothing()
		b.view("doubt", "In doubt")
		b.showsMany("outage", "1 operation in doubt of outage")
		b.faultless(scheme + " many in doubt")
		b.chooses("What became of it", "It happened")
		b.types(b.labelled("Status of the answer"), "201")
		b.types(b.labelled("Why"), "the ledger\r")
		b.shows("dialog", "Settle 1 operation of outage")
		b.faultless(scheme + " dialog of many")
		b.press("\x1b")
		b.asksNothing()
	}
	b.settlesAllShown("It did not happen")
	b.shows("cc-many h2", "1 of 1 operation settled")
	b.faultless("the result of many")
}

// faultless checks the page as it is, after axeScript has run in it.
func (b *tab) faultless(what string) {
	b.Helper()
	faults := eval[[]string](b, `axe.run(document, { resultTypes: ['violations'] }).then((result) => result.violations.flatMap((fault) =>
		fault.nodes.map((node) => fault.id + ': ' + node.failureSummary + ' ' + node.html.slice(0, 200))))`)
	for _, fault := range faults {
		b.Errorf("%s has a fault: %s", what, fault)
	}
}

func TestQuestionForAKeyHasNoFaultOfAccessibility(t *testing.T) {
	script := axeScript(t)
	p := book(t)
	b := open(t, serve(t, server.Config{Access: p.Policy}).page("counters"))
	b.shows("dialog", "An API key, please")
	eval[bool](b, script+"; true")
	if faults := eval[[]string](b, "axe.run(document).then((result) => result.violations.map((fault) => fault.id + ' ' + fault.nodes.map((node) => node.html)))"); len(faults) > 0 {
		t.Errorf("the question for a key has the faults %q", faults)
	}
}

// view is one for the accessibility check and the pictures, where lively has happened.
type view struct {
	path, heading, part, picture string
	do                           func(*tab)
}

func nothing(*tab) {}

var views = []view{
	{"overview", "Overview", "every repeat is refused", "overview", func(b *tab) {
		b.until("a step has ended", "/\\d\\/s/.test(document.querySelector('.line strong').innerText)")
		eval[bool](b, "(document.querySelector('main details').open = true)")
	}},
	{"counters", "Counters", "orders", "counters", nothing},
	{"workers", "Worker pools", "fleet", "workers", nothing},
	{"workers/fleet", "Pool fleet", "held: 40", "ring", func(b *tab) {
		b.click(".ring .cell[data-id='5']")
		b.shows(".detail", "box-5")
	}},
	{"locks", "Locks", "nightly", "locks", nothing},
	{"locks/nightly", "Lock nightly", "worker-8", "lock", nothing},
	{"tokens", "Tokens", "In doubt", "tokens", nothing},
	{"doubt", "In doubt", "r-doubt", "doubt", nothing},
	{"decode", "Decode", "Id", "decode", func(b *tab) {
		b.types(b.labelled("Id"), "912007862023094272\r")
		b.shows(".detail", "2026-11-21")
	}},
	{"events", "Events", "Live.", "events", nothing},
}

// lively has something happen in each view.
func lively(s *service) {
	s.inDoubt("r-doubt")
	for i, key := range []string{"orders", "invoices", "orders-eu", "orders-us", "tickets"} {
		s.send(200, "POST", fmt.Sprintf("/incr/%s?by=%d", key, 1000*i+17), "")
	}
	for i := range 40 {
		s.send(201, "POST", "/worker/fleet", fmt.Sprintf(`{"identity":"box-%d","ttl_ms":600000}`, i))
	}
	s.send(201, "POST", "/lock/nightly", `{"owner":"worker-7","ttl_ms":600000}`)
	s.send(201, "POST", "/lock/report", `{"owner":"r1","ttl_ms":600000,"mode":"shared"}`)
	go func() {
		request, err := newRequest(s, "POST", "/lock/nightly", `{"owner":"worker-8","wait_ms":600000}`)
		if err == nil {
			_ = request() // it ends with the service
		}
	}()
	token := s.send(201, "POST", "/token", "")["token"].(string)
	s.send(200, "POST", "/token/"+token+"/claim", `{"fingerprint":"f"}`)
}
