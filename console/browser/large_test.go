package browser_test

import (
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/coatcheck/coatcheck/counter"
	"github.com/coatcheck/coatcheck/server"
)

// tenThousand adds once to each of 10,000 counters.
func tenThousand(t *testing.T, s *service) {
	t.Helper()
	counters := counter.New(s.store, counter.Config{})
	defer counters.Close()
	var adding sync.WaitGroup
	for part := range 50 {
		adding.Go(func() {
			for i := range 200 {
				if _, err := counters.Add(t.Context(), fmt.Sprintf("key-%05d", part*200+i), counter.Request{By: int64(part*200 + i + 1)}); err != nil {
					t.Errorf("adding to counter %d: %v", part*200+i, err)
					return
				}
			}
		})
	}
	adding.Wait()
}

func TestTenThousandCountersArePagedAndSearchedOnTheServer(t *testing.T) {
	s := serve(t, server.Config{})
	tenThousand(t, s)
	b := open(t, s.page("counters"))
	b.shows(".count", "Page 1: 50 counters, and more after them")
	b.shows("tbody tr:first-child", "key-00000")
	b.click(".pager button:last-child")
	b.shows(".count", "Page 2: 50 counters")
	b.shows("tbody tr:first-child", "key-00050")
	b.click(".pager button:first-child")
	b.shows("tbody tr:first-child", "key-00000")
	b.types(b.labelled("Names that begin with"), "key-099")
	b.shows("tbody tr:first-child", "key-09900")
	b.click(".pager button:last-child") // another search begins with its first page
	b.shows("tbody tr:first-child", "key-09950")
	b.types(b.labelled("Names that begin with"), "key-09999")
	b.shows(".count", "Page 1: 1 counter")
	b.shows("tbody", "10,000")
	b.types(b.labelled("Names that begin with"), "nobody")
	b.shows(".count", "No counters of such a name")
	for _, asked := range b.requests("GET", "/counter") {
		at, err := url.Parse(asked)
		if err != nil || at.Path != "/counter" || at.Query().Get("n") != "50" {
			t.Errorf("%s: a page at a time is enough", asked)
		}
	}
	if n := b.count("*"); n > 1000 {
		t.Errorf("%d elements", n)
	}
}

// What is not seen is not asked for. The browser's clock is moved on by a minute.
func TestHiddenPageAsksForNothing(t *testing.T) {
	s := serve(t, server.Config{})
	s.send(200, "POST", "/incr/orders", "")
	b := open(t, s.page("counters"), "net::ERR_ABORTED")
	b.shows("tbody", "orders")
	hide := func(is bool) {
		eval[bool](b, fmt.Sprintf("(Object.defineProperty(document, 'hidden', { configurable: true, get: () => %v }), document.dispatchEvent(new Event('visibilitychange')))", is))
	}
	hide(true)
	before := len(b.requests("GET", "/"))
	over := chromedp.Events(b.ctx, emulation.VirtualTimeBudgetExpired)
	b.call(cdpCall(emulation.SetVirtualTimePolicy, emulation.SetVirtualTimePolicyParams{Policy: emulation.VirtualTimePolicyAdvance, Budget: new(60_000.0)}))
	for _, err := range over {
		if err != nil {
			t.Fatalf("waiting until a minute of the page has passed: %v", err)
		}
		break
	}
	b.call(cdpCall(emulation.SetVirtualTimePolicy, emulation.SetVirtualTimePolicyParams{Policy: emulation.VirtualTimePolicyAdvance}))
	if asked := b.requests("GET", "/")[before:]; len(asked) != 0 {
		t.Errorf("asked while hidden: %q", asked)
	}
	s.send(200, "POST", "/incr/orders?by=9", "")
	hide(false)
	b.shows("tbody", "10")
	b.view("events", "Events")
	b.shows(".hint", "Live.")
	if got := b.requests("GET", "/events"); len(got) < 2 {
		t.Errorf("%q: it does not listen again", got)
	}
}

func TestLongNamesAndNarrowScreens(t *testing.T) {
	s := serve(t, server.Config{})
	long := strings.Repeat("a-long-name.", 16)
	s.send(200, "POST", "/incr/"+long, "")
	s.send(201, "POST", "/lock/"+long, fmt.Sprintf(`{"owner":%q,"ttl_ms":600000}`, long))
	s.send(201, "POST", "/worker/"+long, fmt.Sprintf(`{"identity":%q}`, long))
	b := open(t, s.page("counters"))
	b.size(360, 700)
	for view, heading := range map[string]string{
		"counters": "Counters", "workers": "Worker pools", "workers/" + long: "Pool", "locks": "Locks", "locks/" + long: "Lock", "limits": "Rate limits", "tokens": "Tokens", "decode": "Decode", "events": "Events",
	} {
		b.view(view, heading)
		b.until("the view has been filled", "document.querySelector('main tbody td, main form, main ol, main .legend li')")
		if width := eval[int](b, "document.documentElement.scrollWidth"); width > 360 {
			t.Errorf("%.20s is %d pixels wide", view, width)
		}
	}
}
