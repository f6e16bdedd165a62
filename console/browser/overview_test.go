package browser_test

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/server"
)

func TestOverviewShowsWhatIsHandedOutAndAReloadKeepsIt(t *testing.T) {
	s := serve(t, server.Config{Dev: true, Console: server.ConsoleConfig{Durability: "WARNING: a failover can lose confirmed writes"}})
	s.send(200, "POST", "/incr/orders?by=41", "")
	for n := range 3 {
		s.send(201, "POST", "/payments", `{"amount":1299,"currency":"EUR","to":"acct_1"}`, fmt.Sprint("Idempotency-Key: k", n))
	}
	b := open(t, s.url+"/console/", "willReadFrequently") // advice
	b.shows("h1", "Overview")
	b.shows("main", "a failover can lose confirmed writes")
	b.shows("main", "Nothing: nothing is in doubt")
	line := func(name string) string {
		return fmt.Sprintf("section[aria-label='Handed out per second'] .line:nth-child(%s)", name)
	}
	told := func() {
		t.Helper()
		b.shows(line("1"), "41 in the hour")
		// of a guarded route, which the page of tokens once counted as 0
		b.shows(line("6"), "3 in the hour")
		// the step in which it happened has ended, and its peak is drawn in the colour of the line
		b.until("the line is drawn", `(() => {
			const canvas = document.querySelector('.uplot canvas');
			const [, r, g, b] = getComputedStyle(document.querySelector('.swatch')).color.match(/(\d+), (\d+), (\d+)/).map(Number);
			const pixels = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
			let rows = new Set();
			for (let i = 0; i < pixels.length; i += 4) if (Math.abs(pixels[i] - r) + Math.abs(pixels[i + 1] - g) + Math.abs(pixels[i + 2] - b) < 30) rows.add(Math.floor(i / 4 / canvas.width));
			return rows.size > 50;
		})()`)
	}
	told()
	b.do(chromedp.Reload())
	told()
	b.click(line("1"))
	b.until("the button says that its line is hidden", "document.querySelector('.line').getAttribute('aria-pressed') === 'false'")
	b.click("main details summary")
	b.shows("main tbody", "41")
	b.view("tokens", "Tokens")
	b.until("the completed are told", "[...document.querySelectorAll('tbody tr')].find((row) => row.innerText.startsWith('Completed')).cells[1].innerText === '3'")
}

func TestOverviewSaysWhatNeedsSomebody(t *testing.T) {
	p := book(t)
	s := serve(t, server.Config{Access: p.Policy})
	s.inDoubt("charge-1", p.use())
	s.inDoubt("charge-2", p.use())
	b := open(t, s.page("overview"))
	b.types("dialog input", p.keys["admin"]+"\r")
	b.shows(".needs", "2 operations are in doubt")
	b.click(".needs a")
	b.shows("h1", "In doubt")
	b.shows("tbody", "charge-1")
}

// A page of 844 pixels has its content above the middle, and the messages cover nothing.
func TestOnAPhoneTheHeaderIsLowAndMessagesCoverNothing(t *testing.T) {
	s := serve(t, server.Config{Console: server.ConsoleConfig{Durability: "as this Redis is configured; WARNING: with ack 0 a failover can lose confirmed writes and hand values out twice"}})
	for i := range 30 {
		s.send(200, "POST", fmt.Sprintf("/incr/k%02d", i), "")
	}
	b := open(t, s.page("counters"))
	b.size(390, 844)
	b.shows("tbody", "k29")
	b.shows("cc-status", "What can be lost")
	if high := eval[float64](b, "document.querySelector('header').getBoundingClientRect().bottom"); high > 160 {
		t.Errorf("the header takes %v of 844 pixels, want 160 at most", high)
	}
	eval[bool](b, "(document.querySelector('.pager').scrollIntoView({block: 'end'}), true)")
	b.click("button[aria-label='INCR k29']")
	b.shows("#said", "k29: 2 is yours")
	covered := eval[[]string](b, `[...document.querySelectorAll('main button')].filter((one) => {
		one.scrollIntoView({ block: 'end' });
		const place = one.getBoundingClientRect();
		const at = document.elementFromPoint(place.left + place.width / 2, place.top + place.height / 2);
		return !one.contains(at) && !one.disabled;
	}).map((one) => one.getAttribute('aria-label') ?? one.innerText)`)
	expect.Equal(t, "the buttons that something covers", len(covered), 0)
	said := eval[float64](b, "document.getElementById('said').getBoundingClientRect().top - document.getElementById('page').getBoundingClientRect().bottom")
	if said < 0 {
		t.Errorf("the message lies %v pixels over the page", -said)
	}
}

func TestAddressWithoutAViewSaysSo(t *testing.T) {
	s := serve(t, server.Config{})
	b := open(t, s.page("conters"))
	b.shows("h1", "There is no such view")
	b.shows("main", "conters")
	b.click("main a[href='#/counters']")
	b.shows("h1", "Counters")
	b.shows(".count", "No counters yet")
}

func TestListOfADeadServerIsOld(t *testing.T) {
	s := serve(t, server.Config{})
	b := open(t, s.page("counters"))
	b.shows(".count", "No counters yet")
	dead := `(() => { window.alive ??= window.fetch; window.fetch = () => Promise.reject(new TypeError('dead')); return true; })()`
	eval[bool](b, dead)
	b.shows(".trouble", "does not answer")
	b.shows("cc-status", "Not ready")
	if header := b.text("cc-status"); strings.Contains(header, "takes writes") {
		t.Errorf("the header of a dead server is %q, want nothing about its store", header)
	}
	expect.Equal(t, "what an empty list of a dead server says", b.text(".count"), "")
	eval[bool](b, "(window.fetch = window.alive, true)")
	s.send(200, "POST", "/incr/orders", "")
	b.shows(".count", "1 counter")
	eval[bool](b, dead)
	b.shows(".count", "As of")
	b.shows("tbody", "orders")
}

// Of a Redis that is away the page says which, since when, and the command that looks.
func TestRedisThatIsAwayIsNamed(t *testing.T) {
	b := open(t, answered(t, func(path string) string {
		switch path {
		case "/readyz":
			return `{"ready":false,"store":"sentinel","ack":2,"reason":"The store is not available",` +
				`"address":"redis+sentinel://a:26379,b:26379/main",` +
				`"since":"2026-11-30T03:00:04Z"}`
		case "/console/api/history":
			return hourUntil(time.Now())
		}
		return ""
	})+"#/overview")
	b.shows(".needs", "The store is not available at redis+sentinel://a:26379,b:26379/main, since")
	b.shows(".needs code", "coatcheck doctor --redis redis+sentinel://a:26379,b:26379/main")
	b.shows(".needs time[datetime='2026-11-30T03:00:04Z']", "")
}

// What is known is shown whatever else is refused, and what was known before is marked as old.
func TestRedisThatIsAwayHidesNothingThatIsKnown(t *testing.T) {
	const unready = `{"ready":false,"store":"standalone","ack":0,"reason":"The store is not available",` +
		`"address":"redis://a:6379","since":"2026-11-30T03:00:04Z"}`
	const full = `{"pools":[{"pool":"fleet","layout":"41/10/12","size":2,"held":2,"used":2,"ttl_ms":30000}]}`
	for _, before := range []bool{true, false} {
		t.Run(fmt.Sprint("open before: ", before), func(t *testing.T) {
			var away atomic.Bool
			away.Store(!before)
			b := open(t, answered(t, func(path string) string {
				switch {
				case path == "/console/api/history":
					return strings.TrimSuffix(hourUntil(time.Now()), "}") + `,"in_doubt":{"operations":3,"since":"2026-11-30T02:00:00Z"}}`
				case path == "/readyz" && away.Load():
					return unready
				case strings.HasPrefix(path, "/worker"):
					return map[bool]string{true: storeAway, false: full}[away.Load()]
				}
				return ""
			})+"#/overview", "status 503", "503 (Service")
			if before {
				b.shows(".needs", "Pool fleet is full: all 2 worker ids are held")
				b.shows(".needs", "3 operations are in doubt")
				away.Store(true)
			}
			b.shows(".needs", "The store is not available at redis://a:6379, since")
			b.shows(".needs code", "coatcheck doctor --redis redis://a:6379")
			b.shows(".needs", "3 operations were in doubt when that was last known")
			if before {
				b.shows(".needs", "Of worker pools nothing newer is known than of")
				b.shows(".needs", "Pool fleet is full")
			} else {
				b.shows(".needs", "It is not known which worker pools need you")
			}
			b.view("tokens", "Tokens")
			b.shows(".doubt", "In doubt when that was last known: 3")
		})
	}
}

// A pool that may have lost leases and that nobody asks needs nobody.
func TestPoolThatNobodyAsksIsCalm(t *testing.T) {
	b := open(t, answered(t, func(path string) string {
		switch {
		case path == "/console/api/history":
			return hourUntil(time.Now())
		case strings.HasPrefix(path, "/worker"):
			return `{"pools":[{"pool":"fleet","layout":"41/10/12","size":2,"held":2,"used":2,"ttl_ms":30000,"quarantined_ms":30000,"unasked":true}]}`
		}
		return ""
	})+"#/overview")
	b.shows(".needs .calm", "Pool fleet will wait when it is asked")
	expect.Equal(t, "what is red of pools", strings.Contains(b.text(".needs .bad"), "fleet"), false)
}

// A pool whose worker ids are all held is full, wherever it is shown.
func TestPoolWithoutAFreeWorkerIDIsFull(t *testing.T) {
	s := serve(t, server.Config{})
	s.send(201, "PUT", "/worker/fleet", `{"layout":"41/1/21"}`)
	for range 2 {
		s.send(201, "POST", "/worker/fleet", "")
	}
	s.send(503, "POST", "/worker/fleet", "")
	b := open(t, s.page("overview"))
	b.shows(".needs .bad", "Pool fleet is full: all 2 worker ids are held")
	b.view("workers", "Worker pools")
	b.shows("tbody", "full: all worker ids are held")
	b.click("tbody a")
	b.shows("main dl", "none: all worker ids are held")
}

// A store that works is not blamed for a server that is unready for another reason.
func TestServerWithoutAWorkerIDHasAStoreThatWorks(t *testing.T) {
	b := open(t, answered(t, func(path string) string {
		switch path {
		case "/readyz":
			return `{"ready":false,"store":"standalone","ack":0,"reason":"no worker id of a configured pool"}`
		case "/console/api/history":
			return hourUntil(time.Now())
		}
		return ""
	})+"#/overview")
	b.shows("cc-status", "Not ready: no worker id of a configured pool")
	b.shows(".needs", "not ready: no worker id of a configured pool")
	for part, wrong := range map[string]string{"cc-status": "no master takes writes", ".needs": "when the store does"} {
		if text := b.text(part); strings.Contains(text, wrong) {
			t.Errorf("%s says %q, want nothing of the store", part, text)
		}
	}
}

// A machine that slept has missed steps of the hour: those that it has are not taken for the last.
func TestHourIsAskedForAnewAfterAGap(t *testing.T) {
	var looks atomic.Int64 // each half an hour after the one before
	b := open(t, answered(t, func(path string) string {
		if path != "/console/api/history" {
			return ""
		}
		return hourUntil(time.Unix(looks.Add(1)*1800, 0))
	})+"#/overview")
	whole := func() int {
		return len(slices.DeleteFunc(b.requests("GET", "/console/api/history"), func(path string) bool { return !strings.HasSuffix(path, "n=720") }))
	}
	expect.Eventually(t, "the whole hour is asked for again", func() bool { return whole() > 1 })
	b.until("the plot ends at the last step", "document.querySelectorAll('.line')[0].innerText.includes('1 in the hour')")
}

// hourUntil is the answer of a process that began a moment ago: one of everything.
func hourUntil(at time.Time) string {
	var series []string
	for _, name := range []string{"counters", "snowflakes", "segments", "uuids", "issued", "completed", "locks", "allowed", "limited", "refused", "failed", "in_doubt", "tokens_in_doubt"} {
		series = append(series, fmt.Sprintf("%q:[1,0,0,0]", name))
	}
	return fmt.Sprintf(`{"until":%q,"step_ms":5000,"series":{%s}}`, at.UTC().Format(time.RFC3339), strings.Join(series, ","))
}
