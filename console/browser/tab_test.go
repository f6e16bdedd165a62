package browser_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// patience is how long something may take that is to happen; it only tells a hang.
const patience = 2 * time.Minute

// tab is a page of the browser, whose test fails if the page writes an error into its console,
// throws one, or asks for something that it does not get.
type tab struct {
	*testing.T

	ctx context.Context

	mu       sync.Mutex
	trouble  []string
	asked    []string // what was asked for, as GET /path
	expected []string // parts of what may be troubled about

	close func() // the page is gone with its test, or sooner
}

// open opens a tab and goes to an address. What is expected to be an error, by a part of its text,
// is none.
func open(t *testing.T, address string, expected ...string) *tab {
	t.Helper()
	ctx, end := chromedp.NewContext(browser(t), chromedp.WithNewBrowserContext())
	b := &tab{T: t, ctx: ctx, expected: expected, close: end}
	t.Cleanup(func() {
		end()
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, text := range b.trouble {
			t.Errorf("the page: %s", text)
		}
	})
	if err := chromedp.Listen(ctx, b.hear); err != nil {
		t.Fatalf("listening to the page: %v", err)
	}
	b.call(cdpCall(network.Enable, network.EnableParams{}))
	b.do(chromedp.Navigate(address))
	return b
}

// hear notes what goes wrong in the page.
func (b *tab) hear(event any) {
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		text := e.ExceptionDetails.Text
		if e.ExceptionDetails.Exception != nil {
			text += " " + e.ExceptionDetails.Exception.Description
		}
		b.note("exception: " + text)
	case *runtime.EventConsoleAPICalled:
		if e.Type == "error" || e.Type == "warning" || e.Type == "assert" {
			var parts []string
			for _, part := range e.Args {
				parts = append(parts, part.Description+string(part.Value))
			}
			b.note("console: " + strings.Join(parts, " "))
		}
	case *log.EventEntryAdded:
		if e.Entry.Level == "error" || e.Entry.Level == "warning" {
			b.note("log: " + e.Entry.Text + " " + e.Entry.URL)
		}
	case *network.EventLoadingFailed:
		if !e.Canceled {
			b.note("request failed: " + e.ErrorText)
		}
	case *network.EventResponseReceived:
		if e.Response.Status >= 400 {
			b.note(fmt.Sprintf("status %d: %s", int(e.Response.Status), e.Response.URL))
		}
	case *network.EventRequestWillBeSent:
		b.mu.Lock()
		b.asked = append(b.asked, e.Request.Method+" "+e.Request.URL)
		b.mu.Unlock()
	}
}

func (b *tab) note(text string) {
	for _, part := range b.expected {
		if strings.Contains(text, part) {
			return
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.trouble = append(b.trouble, text)
}

// requests are those so far whose method and path begin like that.
func (b *tab) requests(method, path string) (found []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, one := range b.asked {
		way, address, _ := strings.Cut(one, " ")
		if at, err := url.Parse(address); err == nil && way == method && strings.HasPrefix(at.Path, path) {
			found = append(found, at.RequestURI())
		}
	}
	return found
}

func (b *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		b.Fatalf("%v; the page says:\n%s", err, b.text("body"))
	}
}

// cdpCall is an action of the protocol itself.
func cdpCall[P, R any](command cdp.Command[P, R], params P) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := chromedp.Call(ctx, command, params)
		return err
	}
}

func (b *tab) call(action func(context.Context) error) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	if err := action(ctx); err != nil {
		b.Fatalf("an action on the page: %v", err)
	}
}

// eval gives what an expression of the page is worth.
func eval[T any](b *tab, expression string) T {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		b.Fatalf("the page evaluates %s: %v", expression, err)
	}
	return value
}

// until waits for an expression to be true. The page's policy forbids the library's own way, which
// makes functions of text.
func (b *tab) until(what, expression string) {
	b.Helper()
	for deadline := time.Now().Add(patience); !eval[bool](b, "Boolean("+expression+")"); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			b.Fatalf("not within %v: %s; the page says:\n%s", patience, what, b.text("body"))
		}
	}
}

func quote(text string) string {
	quoted, err := json.Marshal(text)
	if err != nil {
		panic(err)
	}
	return string(quoted)
}

// shows waits until the text of an element holds a part.
func (b *tab) shows(selector, part string) {
	b.Helper()
	b.until(selector+" shows "+part, fmt.Sprintf("document.querySelector(%s)?.innerText.includes(%s)", quote(selector), quote(part)))
}

// asksNothing waits until no dialog is open.
func (b *tab) asksNothing() {
	b.Helper()
	b.until("no dialog", "!document.querySelector('dialog')")
}

func (b *tab) has(selector string) bool {
	b.Helper()
	return eval[bool](b, fmt.Sprintf("Boolean(document.querySelector(%s))", quote(selector)))
}

// text is what people read in an element.
func (b *tab) text(selector string) string {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	text, err := chromedp.Run(ctx, chromedp.Evaluate[string](fmt.Sprintf("document.querySelector(%s)?.innerText ?? '(nothing)'", quote(selector))))
	if err != nil {
		return err.Error()
	}
	return text
}

func (b *tab) count(selector string) int {
	b.Helper()
	return eval[int](b, fmt.Sprintf("document.querySelectorAll(%s).length", quote(selector)))
}

// click clicks with the mouse on what can be seen.
func (b *tab) click(selector string) {
	b.Helper()
	b.until(selector+" is there", fmt.Sprintf("document.querySelector(%s)?.checkVisibility()", quote(selector)))
	b.do(chromedp.Click(chromedp.CSS(selector)))
}

// types writes into a field, as a person would.
func (b *tab) types(selector, text string) {
	b.Helper()
	b.until(selector+" is there", fmt.Sprintf("document.querySelector(%s)?.checkVisibility()", quote(selector)))
	b.do(chromedp.Focus(chromedp.CSS(selector)))
	eval[bool](b, fmt.Sprintf("document.querySelector(%s).select?.() ?? true", quote(selector)))
	b.do(chromedp.KeyEvent(text))
}

func (b *tab) press(keys string) {
	b.Helper()
	b.do(chromedp.KeyEvent(keys))
}

// view goes to a view by its address.
func (b *tab) view(name, heading string) {
	b.Helper()
	eval[bool](b, fmt.Sprintf("(location.hash = %s, true)", quote("#/"+name)))
	b.shows("main h1", heading)
}

// labelled is the selector of the control behind a label.
func (b *tab) labelled(label string) string {
	b.Helper()
	find := fmt.Sprintf("[...document.querySelectorAll('label')].find((one) => one.innerText === %s)?.htmlFor", quote(label))
	b.until("a field "+label, find)
	return "#" + eval[string](b, find)
}

// chooses chooses from the list with that label.
func (b *tab) chooses(label, choice string) {
	b.Helper()
	list := fmt.Sprintf("document.querySelector(%s)", quote(b.labelled(label)))
	option := fmt.Sprintf("[...%s.options].find((one) => one.innerText === %s)", list, quote(choice))
	b.until("a choice "+choice, option)
	eval[bool](b, fmt.Sprintf(`(() => { const list = %s; list.value = %s.value;
		list.dispatchEvent(new Event('input', { bubbles: true }));
		return list.dispatchEvent(new Event('change', { bubbles: true })); })()`, list, option))
}

// prefers has the browser say which colours its user prefers.
func (b *tab) prefers(scheme string) {
	b.Helper()
	b.call(cdpCall(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
		{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"},
	}}))
}

func (b *tab) size(width, height int64) {
	b.Helper()
	b.do(chromedp.EmulateViewport(width, height))
}
