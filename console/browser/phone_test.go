package browser_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/server"
	"github.com/coatcheck/coatcheck/workerlease"
)

// On a phone each row is a card: no column and no button is beyond the edge, or hidden.
func TestOnAPhoneEveryColumnAndButtonIsVisible(t *testing.T) {
	s := serve(t, server.Config{})
	s.manyInDoubt("outage", 1)
	lively(s) // after it, since it leaves one that comes to be in doubt at any time
	b := open(t, s.page("counters"))
	b.size(390, 844)
	checkEdges := func(what string) {
		t.Helper()
		beyond := eval[[]string](b, `[...document.querySelectorAll('main tbody th, main tbody td, main button')].filter((one) => {
			if (one.closest('details:not([open])') || one.closest('[hidden]')) return false;
			const place = one.getBoundingClientRect();
			return place.width === 0 || place.left < 0 || place.right > 390;
		}).map((one) => one.outerHTML.slice(0, 120))`)
		for _, one := range beyond {
			t.Errorf("%s: beyond the edge of a phone, or hidden: %s", what, one)
		}
	}
	for _, view := range views {
		b.view(view.path, view.heading)
		b.shows("main", view.part)
		view.do(b)
		checkEdges(view.path)
	}
	b.view("doubt", "In doubt")
	b.showsMany("outage", "1 operation in doubt of outage")
	checkEdges("many in doubt")
	b.view("locks/nightly", "Lock nightly")
	b.shows("main tbody", "worker-7")
	labels := eval[[]string](b, "[...document.querySelectorAll('main tbody tr')].at(0).querySelectorAll('[data-label]').values().map((one) => one.dataset.label).toArray()")
	expect.Equal(t, "the labels of a holder's card", labels, []string{"Holder", "Fence", "Since", "Left", "Permits", "Take away"})
	expect.Equal(t, "the role of a cell", eval[string](b, "document.querySelector('main tbody td').getAttribute('role')"), "cell")
}

// In each form all fields are equally wide; on a phone they begin and end at one line as well.
func TestFieldsOfAFormHaveOneWidthAndOneEdge(t *testing.T) {
	s := serve(t, server.Config{})
	s.inDoubt("r-doubt")
	b := open(t, s.page("doubt"))
	b.shows("main tbody", "r-doubt")
	b.click("main tbody a")
	b.shows("main", "Settle it")
	settle := eval[string](b, "location.hash.slice(2)")
	for _, width := range []int64{1280, 390} {
		b.size(width, 844)
		for _, path := range []string{"counters", "locks", "limits", "tokens", "doubt", "decode", settle} {
			eval[bool](b, fmt.Sprintf("(location.hash = '#/%s', true)", path))
			b.until(path+" has its form", "document.querySelector('main form .field') !== null")
			places := eval[[][]float64](b, `[...document.querySelectorAll('main form .field > :is(input, select, textarea)')].map((one) => one.getBoundingClientRect())
				.filter((place) => place.width > 0).map((place) => [place.width, place.left, place.top])`)
			tops := map[float64]bool{}
			for _, place := range places {
				tops[place[2]] = true
			}
			if width == 1280 && path == "doubt" && len(tops) != 1 {
				t.Errorf("%s at %d: the fields begin at the heights %v, want one", path, width, tops)
			}
			for _, place := range places[1:] {
				if place[0] != places[0][0] || (width == 390 || path == settle) && place[1] != places[0][1] {
					t.Errorf("%s at %d: a field of width %v at %v, and one of width %v at %v", path, width, places[0][0], places[0][1], place[0], place[1])
				}
			}
		}
	}
}

// A time is written by how far it is from now; the exact one is at hand, without a mouse as well.
func TestTimesAreRelativeAndTheExactOneIsAtHand(t *testing.T) {
	s := serve(t, server.Config{})
	s.send(201, "POST", "/lock/nightly", `{"owner":"w","ttl_ms":600000}`)
	b := open(t, s.page("locks/nightly"))
	b.until("a relative time", `/^(now|\d+ s ago)$/.test(document.querySelector('main time.when')?.innerText)`)
	title := eval[string](b, "document.querySelector('main time.when').title")
	if _, err := time.Parse("2006-01-02 15:04:05.999 MST", title); err != nil {
		t.Errorf("the title of a time is %q: %v", title, err)
	}
	b.click("main time.when")
	b.shows("main time.when", title)
}

func TestPoolsShowHowFullTheirRingsAre(t *testing.T) {
	s := serve(t, server.Config{})
	for range 3 {
		s.send(201, "POST", "/worker/small", `{"layout":"41/2/12","ttl_ms":600000}`)
	}
	b := open(t, s.page("workers"))
	b.shows("main tbody", "3 of 4 (75 %)")
	expect.Equal(t, "the part of the bar", eval[string](b, "document.querySelector('.fill .part').getAttribute('width')"), "60")
}

// Why ids are refused has an answer at each place where somebody looks: calm, with the way out.
func TestPoolNewToThisRedisSaysHowItGoesOn(t *testing.T) {
	s := serve(t, server.Config{Workers: workerlease.Config{NewPools: workerlease.NewPoolsWait}})
	s.send(503, "GET", "/id/snowflake/orders", "")
	b := open(t, s.page("overview"))
	b.shows(".needs .calm", "Pool orders is new to this Redis")
	b.shows(".needs .calm code", "coatcheck worker create orders")
	b.shows("cc-status", "ids of orders are refused")
	for part, wrong := range map[string]string{"cc-status": "● Ready", "main .needs": "lost"} {
		expect.Equal(t, part+" says "+wrong, eval[bool](b, fmt.Sprintf("document.querySelector('%s').innerText.includes('%s')", part, wrong)), false)
	}
	b.view("events", "Events")
	b.shows(".log", "coatcheck worker create orders")
	expect.Equal(t, "events in red", eval[string](b, "[...document.querySelectorAll('.log .grave')].map((one) => one.innerText).join()"), "")
	b.view("workers", "Worker pools")
	b.shows("main tbody", "new to this Redis: grants in")
	b.shows("main tbody", "or at once after: coatcheck worker create orders")
	b.shows(".count", "Page 1: 1 pool")
}

// The number is that of the metrics: nobody has asked again.
func TestOverviewAndTokensShowTheOperationsInDoubtOfTheStore(t *testing.T) {
	s := serve(t, server.Config{})
	for i := range 3 {
		s.inDoubt(fmt.Sprint("charge-", i))
	}
	b := open(t, s.page("overview"))
	b.shows(".needs", "3 operations are in doubt, the oldest since")
	b.view("tokens", "Tokens")
	b.shows(".doubt", "In doubt now: 3, the oldest since")
}
