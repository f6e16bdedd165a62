package browser_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/coatcheck/coatcheck/server"
)

func TestPageAsksForAKeyAndKeepsItInItsTab(t *testing.T) {
	p := book(t)
	s := serve(t, server.Config{Access: p.Policy})
	s.send(200, "POST", "/incr/orders", "", p.use())
	b := open(t, s.page("counters"))
	b.shows("dialog", "An API key, please")
	b.types("dialog input", "cck_nobody_"+strings.Repeat("x", 43)+"\r")
	b.shows("dialog .trouble", "not known")
	b.types("dialog input", p.keys["read"]+"\r")
	b.asksNothing()
	b.shows("tbody", "orders")
	b.shows("cc-status", "You: read-person, read")
	if b.has("button[aria-label^=INCR]") {
		t.Error("a reader has a button that changes something")
	}
	b.view("events", "Events")
	b.shows(".hint", "Live.")
	trace := eval[string](b, "location.href + JSON.stringify(localStorage) + document.cookie + document.documentElement.outerHTML + [...document.querySelectorAll('input')].map((one) => one.value)")
	if strings.Contains(trace, p.keys["read"]) {
		t.Error("the key is left in the page")
	}
	for _, asked := range append(b.requests("GET", "/"), b.requests("POST", "/")...) {
		if strings.Contains(asked, "cck_") {
			t.Errorf("the key is in an address: %s", asked)
		}
	}
	b.do(chromedp.Reload())
	b.shows("cc-status", "You: read-person, read") // a reload keeps it
	b.click("#forget")
	b.shows("dialog", "An API key, please")
	if kept := eval[string](b, "JSON.stringify(sessionStorage)"); kept != "{}" {
		t.Errorf("after Forget key the tab keeps %s", kept)
	}
	b.types("dialog input", p.keys["admin"]+"\r")
	b.shows("cc-status", "You: admin-person, admin")
	b.click("#forget")
	b.do(chromedp.Reload())
	b.shows("dialog", "An API key, please")
	b.click("dialog button[type=button]")
	b.shows("main", "Who is asking?")
	b.click("main button")
	b.shows("dialog", "An API key, please")
}

// Where callers without a key may look, one with a key can show it.
func TestPageWithoutAKeyTakesOne(t *testing.T) {
	p := book(t)
	lines, err := os.ReadFile(p.file)
	if err != nil {
		t.Fatalf("reading the keys: %v", err)
	}
	p.write(t, string(lines)+"anonymous: {role: read}\n")
	if err := p.Reload(t.Context()); err != nil {
		t.Fatalf("reading the keys anew, with anonymous callers: %v", err)
	}
	s := serve(t, server.Config{Access: p.Policy})
	s.send(200, "POST", "/incr/orders", "", p.use())
	b := open(t, s.page("counters"))
	b.shows("cc-status", "You: anybody, read")
	b.shows("#forget", "Show a key")
	b.click("#forget")
	b.shows("main tbody", "orders")
	b.types("dialog input", p.keys["admin"]+"\r")
	b.asksNothing()
	b.shows("cc-status", "You: admin-person, admin")
	b.click("button[aria-label='INCR orders']")
	b.shows("#said", "orders: 2 is yours")
	b.shows("#forget", "Forget key")
	b.click("#forget")
	b.shows("cc-status", "You: anybody, read")
}

// The browser tells that a dialog was closed after what happens next: here the test asks again
// before that.
func TestDialogThatWasClosedIsOpenedAgainAtOnce(t *testing.T) {
	p := book(t)
	b := open(t, serve(t, server.Config{Access: p.Policy}).page("counters"))
	b.shows("dialog", "An API key, please")
	dialogs := eval[[]int](b, `new Promise((done) => {
		const [dialog, again] = [document.querySelector('dialog'), document.querySelector('main button')];
		const open = () => document.querySelectorAll('dialog[open]').length;
		dialog.addEventListener('close', () => setTimeout(() => {
			const reopened = open();
			document.querySelector('main button').click(); // for the dialog that is open
			done([reopened, open()]);
		}));
		dialog.querySelector('button[type=button]').click();
		again.click();
	})`)
	if !slices.Equal(dialogs, []int{1, 1}) {
		t.Errorf("%d dialogs are open after asking again, and once more", dialogs)
	}
	b.types("dialog input", p.keys["read"]+"\r")
	b.asksNothing()
	b.shows("cc-status", "You: read-person, read")
}

func TestKeyThatEndsIsAskedForAgain(t *testing.T) {
	p := book(t)
	s := serve(t, server.Config{Access: p.Policy})
	b := open(t, s.page("counters"), "401")
	b.types("dialog input", p.keys["admin"]+"\r")
	b.shows(".count", "No counters yet")
	p.write(t, "keys: []\n")
	if err := p.Reload(t.Context()); err != nil {
		t.Fatalf("reading the keys anew, without any: %v", err)
	}
	b.shows("dialog .trouble", "not known")
	b.shows("main", "Who is asking?")
}

func TestRolesAndNamesDecideWhatThePageShows(t *testing.T) {
	p := book(t)
	s := serve(t, server.Config{Access: p.Policy})
	for _, key := range []string{"orders", "orders-2", "bills"} {
		s.send(200, "POST", "/incr/"+key, "", p.use())
	}
	s.send(201, "POST", "/lock/nightly", `{"owner":"worker-7","ttl_ms":600000}`, p.use())
	for _, who := range []struct {
		name, names  string
		counters     int
		takes, force bool
	}{{"read", "", 3, false, false}, {"use", "", 3, true, false}, {"admin", "", 3, true, true}, {"orders", "orders*", 2, true, false}} {
		b := open(t, s.page("counters"), "403") // of a lock outside of the names
		b.types("dialog input", p.keys[who.name]+"\r")
		b.shows("cc-status", "You: "+who.name+"-person")
		b.shows("cc-status", who.names)
		b.shows("tbody", "orders")
		if n := b.count("tbody tr"); n != who.counters {
			t.Errorf("%s sees %d counters", who.name, n)
		}
		if b.has("button[aria-label^=INCR]") != who.takes {
			t.Errorf("%s has buttons to take: %v", who.name, !who.takes)
		}
		b.view("locks/nightly", "Lock nightly")
		if who.names == "" {
			b.shows("main tbody", "worker-7")
		} else {
			b.shows(".trouble", "outside of the names")
		}
		if b.has("main button.danger") != who.force {
			t.Errorf("%s may take locks away: %v", who.name, !who.force)
		}
		b.close()
	}
}

func TestReadOnlyPageHasNoButtonThatChangesAnything(t *testing.T) {
	s := serve(t, server.Config{Console: server.ConsoleConfig{Mode: server.ConsoleRead}})
	s.send(200, "POST", "/incr/orders", "")
	s.send(201, "POST", "/lock/nightly", `{"owner":"worker-7","ttl_ms":600000}`)
	b := open(t, s.page("counters"))
	b.shows("tbody", "orders")
	b.shows("cc-status", "this page changes nothing")
	if b.has("main tbody button") {
		t.Error("there is a button beside a counter")
	}
	b.view("locks/nightly", "Lock nightly")
	b.shows("main tbody", "worker-7")
	if b.has("main button") {
		t.Error("there is a button beside a lock")
	}
	for _, asked := range b.asked {
		if !strings.HasPrefix(asked, "GET ") {
			t.Errorf("a page that changes nothing asked for %s", asked)
		}
	}
}
