package browser_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/internal/onstore"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/server"
)

func TestCountersShowTheirValuesAndTheButtonTakesOne(t *testing.T) {
	s := serve(t, server.Config{})
	s.send(200, "POST", "/incr/orders?by=41", "")
	s.send(200, "PUT", "/counter/huge", `{"value":9007199254740993}`)
	b := open(t, s.page("counters"))
	b.shows("tbody", "9,007,199,254,740,993") // its last digits are beyond what a float holds
	b.shows("tbody tr:nth-child(2)", "41")
	b.click("button[aria-label='INCR orders']")
	b.shows("#said", "orders: 42 is yours")
	b.shows("tbody tr:nth-child(2)", "42")
	expect.Equal(t, "GET /counter/orders", s.send(200, "GET", "/counter/orders", "")["value"], any(42.0))
	expect.Equal(t, "the number of requests of one click", len(b.requests("POST", "/incr/")), 1)
	s.send(200, "POST", "/incr/orders?by=1000", "")
	b.until("the rate is told", `/[1-9]/.test(document.querySelectorAll('tbody tr')[1].cells[2].innerText)`)
	if wide := eval[float64](b, "document.querySelectorAll('.spark-line')[1].getBBox().width"); wide < 90 {
		t.Errorf("the line of two values is %v pixels wide, want the whole of 96", wide)
	}
	b.shows("cc-status", "Ready")
	b.shows("cc-status", "Store: standalone, its master takes writes")
	b.shows("cc-status", "(p50)")
	b.shows("cc-status", "What can be lost")
}

// What another program has written to the key of a counter is shown as what it is, look after look.
func TestCounterWithoutAnIntegerSaysSo(t *testing.T) {
	s := serve(t, server.Config{})
	s.send(200, "POST", "/incr/broken", "")
	s.send(200, "POST", "/incr/orders", "")
	if err := s.redis.Client().Set(t.Context(), onstore.Key(s.store, "counter", "broken"), "a text", 0).Err(); err != nil {
		t.Fatalf("writing a text to the counter: %v", err)
	}
	b := open(t, s.page("counters"))
	b.shows("tbody tr:nth-child(1)", "not-an-integer")
	s.send(200, "POST", "/incr/orders?by=41", "") // the next look shows it
	b.shows("tbody tr:nth-child(2)", "42")
	b.shows("tbody tr:nth-child(1)", "not-an-integer")
	expect.Equal(t, "the trouble that is shown", b.text(".trouble"), "")
}

func TestButtonThatDoesNotKnowItsOutcomeAsksForTheSameValueAgain(t *testing.T) {
	s := serve(t, server.Config{})
	s.send(200, "POST", "/incr/orders", "")
	b := open(t, s.page("counters"))
	b.shows("tbody", "orders")
	// The answer to the first click is lost on its way.
	eval[bool](b, `(() => { const real = window.fetch; let lost = false; window.fetch = async (url, init) => {
		const answer = await real(url, init);
		if (init?.method === 'POST' && !lost) { lost = true; throw new TypeError('lost'); }
		return answer;
	}; return true; })()`)
	b.click("button[aria-label='INCR orders']")
	b.shows("#said", "not known")
	b.click("button[aria-label='INCR orders']")
	b.shows("#said", "orders: 2 is yours")
	expect.Equal(t, "GET /counter/orders", s.send(200, "GET", "/counter/orders", "")["value"], any(2.0))
}

func TestLocksShowHoldersAndQueue(t *testing.T) {
	s := serve(t, server.Config{})
	held := s.send(201, "POST", "/lock/nightly", `{"owner":"worker-7","ttl_ms":600000}`)
	s.send(201, "POST", "/lock/readers", `{"owner":"r1","ttl_ms":600000,"mode":"shared"}`)
	s.send(201, "POST", "/lock/readers", `{"owner":"r2","ttl_ms":600000,"mode":"shared"}`)
	b := open(t, s.page("locks"))
	b.shows("tbody", "nightly")
	row := b.text("tbody tr:nth-child(1)")
	for _, part := range []string{"exclusive", "worker-7", strconv.FormatInt(int64(held["fence"].(float64)), 10), "min"} {
		if !strings.Contains(row, part) {
			t.Errorf("%q lacks %s", row, part)
		}
	}
	b.shows("tbody tr:nth-child(2)", "and 1 more")
	before := b.text("tbody tr:nth-child(1) td:nth-child(5)")
	b.until("the time that is left goes on", "document.querySelector('tbody tr td:nth-child(5)').innerText !== "+quote(before))
	b.click("tbody a")
	b.shows("main h1", "Lock nightly")
	b.shows("main table", "worker-7")
}

// The button asks first. Without a confirmation nothing changes.
func TestForceReleaseAsksAndThenTakesTheLock(t *testing.T) {
	s := serve(t, server.Config{})
	held := s.send(201, "POST", "/lock/nightly", `{"owner":"worker-7","ttl_ms":600000}`)
	next := make(chan map[string]any, 1)
	go func() {
		next <- s.send(201, "POST", "/lock/nightly", `{"owner":"worker-8","ttl_ms":600000,"wait_ms":600000}`)
	}()
	b := open(t, s.page("locks/nightly"))
	b.shows("main", "worker-8")
	b.click("button.danger")
	b.shows("dialog h2", "Take lock nightly from worker-7?")
	if focus := eval[string](b, "document.activeElement.innerText"); focus != "Leave it" {
		t.Errorf("the button that Enter means is %q", focus)
	}
	b.press("\x1b") // Escape
	b.asksNothing()
	b.click("button.danger")
	b.click("dialog button:not(.danger)")
	b.asksNothing()
	expect.MustEqual(t, "the requests before it was confirmed", b.requests("DELETE", "/lock"), nil)
	b.shows("main tbody", "worker-7")
	b.click("button.danger")
	b.click("dialog button.danger")
	b.shows("#said", "nightly was taken from worker-7")
	got := <-next
	if got["fence"].(float64) <= held["fence"].(float64) {
		t.Errorf("the next holder got %v, want a fence above that of %v", got, held)
	}
	b.shows("main tbody", "worker-8")
	want := "/lock/nightly?force=" + strconv.FormatInt(int64(held["fence"].(float64)), 10)
	expect.Equal(t, "the requests after it was confirmed", b.requests("DELETE", "/lock"), []string{want})
	b.view("events", "Events")
	b.shows(".log", "lock nightly was taken by force")
}

func TestLimitIsLookedUpAndReset(t *testing.T) {
	s := serve(t, server.Config{})
	const rate = `{"rate":10,"per_ms":3600000}`
	for range 4 {
		s.send(200, "POST", "/limit/sms:17", rate)
	}
	s.send(429, "POST", "/limit/sms:17", `{"rate":10,"per_ms":3600000,"cost":9}`)
	b := open(t, s.page("limits"))
	b.until("what was let through and refused", "[...document.querySelectorAll('tbody tr')].map((row) => row.cells[1].innerText).join() === '4,1'")
	b.types(b.labelled("Limit"), "sms:17")
	for label, value := range map[string]string{"Rate": "10", "in seconds": "3600"} {
		eval[bool](b, "(document.querySelector("+quote(b.labelled(label))+").value = "+quote(value)+", true)")
	}
	b.click("button[type=submit]")
	b.shows(".detail", "6")
	b.click(".detail button")
	b.shows("dialog", "the whole burst is free")
	b.click("dialog .danger")
	b.until("all of it is free", "document.querySelector('.detail dd').innerText === '10'")
	s.send(200, "POST", "/limit/sms:17", `{"rate":10,"per_ms":3600000,"cost":10}`)
}

func TestTokenIsLookedUpAndLeavesNoTrace(t *testing.T) {
	s := serve(t, server.Config{})
	token := s.send(201, "POST", "/token", `{"scope":"payments"}`)["token"].(string)
	b := open(t, s.page("tokens"))
	b.types(b.labelled("Token"), token+"\r")
	b.shows(".detail", "issued")
	b.shows(".detail", "payments")
	claimed := s.send(200, "POST", "/token/"+token+"/claim", `{"fingerprint":"f"}`)
	s.send(204, "POST", "/token/"+token+"/complete", `{"status":200,"headers":{},"body_base64":""}`, "Lease-Token: "+claimed["lease"].(string))
	s.send(200, "POST", "/token/"+token+"/claim", `{"fingerprint":"f"}`)
	b.click("button[type=submit]")
	b.shows(".detail", "completed")
	for i, n := range []string{"1", "1", "1", "1"} { // issued, claimed, replayed, completed
		b.until("the tally", "document.querySelectorAll('tbody tr')["+strconv.Itoa(i)+"].cells[1].innerText === '"+n+"'")
	}
	b.view("events", "Events")
	trace := eval[string](b, "location.href + JSON.stringify(localStorage) + JSON.stringify(sessionStorage) + document.cookie + document.documentElement.outerHTML + [...document.querySelectorAll('input')].map((one) => one.value)")
	if strings.Contains(trace, token) {
		t.Error("the page still has the token")
	}
	b.view("tokens", "Tokens")
	b.until("the field is empty", "document.querySelector('main input').value === ''")
}

func TestTokenInDoubtIsTold(t *testing.T) {
	s := serve(t, server.Config{})
	token := s.send(201, "POST", "/token", "")["token"].(string)
	s.send(200, "POST", "/token/"+token+"/claim", `{"fingerprint":"f","lease_ms":100}`)
	b := open(t, s.page("tokens"))
	b.types(b.labelled("Token"), token)
	b.until("its lease has lapsed", "(document.querySelector('main form').requestSubmit(), document.querySelector('.detail').innerText.includes('in-doubt'))")
	s.send(409, "POST", "/token/"+token+"/claim", `{"fingerprint":"f"}`)
	b.until("the tally", "document.querySelectorAll('tbody tr')[5].cells[1].innerText === '1'")
	b.view("events", "Events")
	b.shows(".log", "an operation is in doubt")
}

func TestIDIsTakenApart(t *testing.T) {
	s := serve(t, server.Config{})
	b := open(t, s.page("decode"), "status 400", "400 (Bad Request)")
	b.types(b.labelled("Id"), "912007862023094272\r")
	b.shows(".detail", "2026-11-21 15:53:38.593 UTC")
	b.shows(".detail", "912007862023094272")
	expect.Contains(t, "the parts of the id", b.text(".detail tbody"), "Worker id\t10\t0")
	b.types(b.labelled("Layout"), "41/5/5/12")
	b.click("button[type=submit]")
	b.shows(".detail", "Datacenter")
	b.types(b.labelled("Id"), "not an id\r")
	b.shows(".detail", "not an id in format decimal")
}

func TestEventsAreToldAsTheyHappen(t *testing.T) {
	s := serve(t, server.Config{})
	s.send(200, "PUT", "/counter/early", `{"value":1}`) // before the page was there
	b := open(t, s.page("events"))
	b.shows(".hint", "Live.")
	lease := s.send(201, "POST", "/worker/fleet", `{"identity":"box-1"}`)
	b.shows(".log", "worker id 0 of fleet was granted to box-1")
	s.send(200, "PUT", "/counter/orders", `{"value":5}`)
	b.shows(".log li:first-child", "counter orders was set to 5")
	s.send(200, "PUT", "/counter/huge", `{"value":9007199254740993}`) // no float holds it
	b.shows(".log li:first-child", "counter huge was set to 9007199254740993")
	s.send(204, "DELETE", "/counter/huge", "")
	s.send(200, "PUT", "/id/segment/bills", `{"next":"1000"}`)
	b.shows(".log li:first-child", "tag bills goes on at 1000")
	s.send(410, "PUT", "/worker/fleet/0", "", "Lease-Token: AAAAAAAAAAAAAAAAAAAAAA")
	b.shows(".log li.grave", "not theirs")
	b.shows(".log", "counter early was set to 1") // the backlog
	if lease["lease"] == "" || strings.Contains(eval[string](b, "document.documentElement.outerHTML"), lease["lease"].(string)) {
		t.Error("the page has a lease")
	}
	b.do() // the list of one kind
	eval[bool](b, "(() => { const group = document.querySelector('main select'); group.value = 'counter'; group.dispatchEvent(new Event('change')); return true })()")
	b.until("only counters", "document.querySelectorAll('.log li').length === 4")
	b.view("counters", "Counters")
	s.send(204, "DELETE", "/counter/orders", "")
	b.view("events", "Events")
	b.shows(".log", "counter orders was removed")
}
