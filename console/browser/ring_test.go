package browser_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp/kb"

	"github.com/coatcheck/coatcheck/console"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/server"
	"github.com/coatcheck/coatcheck/workerlease"
)

func TestRingShowsEverySlotAndOneInFull(t *testing.T) {
	s := serve(t, server.Config{Workers: workerlease.Config{NewPools: workerlease.NewPoolsWait, Cooldown: time.Hour, LongestTTL: time.Hour}})
	s.send(201, "PUT", "/worker/fleet", `{"ttl_ms":600000}`)
	for i := range 3 {
		s.send(201, "POST", "/worker/fleet", fmt.Sprintf(`{"identity":"box-%d"}`, i))
	}
	given := s.send(201, "POST", "/worker/fleet", `{"identity":"gone"}`)
	s.send(204, "DELETE", "/worker/fleet/3", "", "Lease-Token: "+given["lease"].(string))
	b := open(t, s.page("workers"))
	b.shows("tbody", "fleet")
	expect.Contains(t, "the row of the pool", b.text("tbody tr"), "41/10/12", "1,024", "grants")
	b.click("tbody a")
	b.shows("main h1", "Pool fleet")
	b.until("1,024 cells", "document.querySelectorAll('.ring .cell').length === 1024")
	b.shows(".legend", "held: 3")
	b.shows(".legend", "cooling: 1")
	b.shows(".legend", "free: 1,020")
	b.click(".ring .cell[data-id='1']")
	b.shows(".detail", "box-1")
	b.shows(".detail", "min")
	b.shows("#said", "Worker id 1: held, held by box-1")
	b.types(b.labelled("Worker id"), "3")
	b.shows(".detail", "cooling")
	b.shows(".detail", "gone")
	b.press(kb.ArrowUp)
	b.shows("#said", "Worker id 4: free")
	b.click("summary")
	b.until("the table has those that are not free", "document.querySelectorAll('details tbody tr').length === 4")
	b.click("#all-slots")
	b.until("and all", "document.querySelectorAll('details tbody tr').length === 1024")
}

// Every state has its colour and, for who does not see it, its mark. One that a server cannot be
// brought into quickly is answered by hand.
func TestCellsAreTaughtByMarksAndNotOnlyByColour(t *testing.T) {
	now := time.Now().UTC()
	slot := func(id int, state string, left time.Duration) string {
		return fmt.Sprintf(`{"worker_id":%d,"state":%q,"holder":"h","fence":7,"not_before":%q,"not_after":%q}`, id, state, now.Format(time.RFC3339Nano), now.Add(left).Format(time.RFC3339Nano))
	}
	quarantine := 0
	b := open(t, answered(t, func(path string) string {
		if !strings.HasPrefix(path, "/worker/p") {
			return ""
		}
		slots := strings.Join([]string{slot(0, "held", time.Hour), slot(1, "held", 9*time.Minute), slot(2, "cooling", -time.Minute), slot(3, "free", -time.Hour), `{"worker_id":4,"state":"free"}`}, ",")
		return fmt.Sprintf(`{"pool":"p","layout":"41/10/12","epoch":"2020-01-01T00:00:00Z","size":5,"used":4,"ttl_ms":3600000,"quarantined_ms":%d,"server_time":%q,"slots":[%s]}`, quarantine, now.Format(time.RFC3339Nano), slots)
	})+"#/workers/p")
	b.until("five cells", "document.querySelectorAll('.ring .cell').length === 5")
	looks := func() map[string]string {
		return eval[map[string]string](b, `Object.fromEntries([...document.querySelectorAll('.ring .cell')].map((cell, i) => [cell.getAttribute('class').split(' ')[1],
			[getComputedStyle(cell).fill === getComputedStyle(document.body).backgroundColor, document.querySelectorAll('.ring .mark')[i].getAttribute('d')].join(' ')]))`)
	}
	seen := map[string]bool{}
	for state, look := range looks() {
		seen[look] = true
		t.Log(state, look)
	}
	if len(seen) != 5 {
		t.Errorf("%v: two states look alike to who sees no colours", seen)
	}
	quarantine = 5000
	b.shows(".legend", "quarantined: 3")
	b.shows("cc-ring", "none for 5.0 s")
	if _, ok := looks()["quarantined"]; !ok {
		t.Errorf("got the cells %v, want one that is quarantined", looks())
	}
}

// The time to a pool's next grant is counted down between two answers of the service, which say
// the same all the time.
func TestQuarantineOfAPoolIsCountedDown(t *testing.T) {
	const pool = `{"pool":"p","layout":"41/10/12","epoch":"2020-01-01T00:00:00Z","size":1,"used":0,"ttl_ms":3600000,"quarantined_ms":59000`
	at := answered(t, func(path string) string {
		switch {
		case strings.HasPrefix(path, "/worker/p"):
			return pool + `,"server_time":"2026-01-01T00:00:00Z","slots":[{"worker_id":0,"state":"free"}]}`
		case strings.HasPrefix(path, "/worker"):
			return `{"pools":[` + pool + `}]}`
		}
		return ""
	})
	for view, says := range map[string]string{"workers": "quarantined, ", "workers/p": "none for "} {
		b := open(t, at+"#/"+view)
		b.until(view+" counts down", fmt.Sprintf(`Number(document.querySelector('main').textContent.match(/%s([\d.]+) s/)?.[1]) < 58.9`, says))
	}
}

// A pool that this Redis does not know has no ring before its first grant, and is asked about all
// the while.
func TestPoolThatWaitsForItsFirstGrantIsCountedDown(t *testing.T) {
	s := serve(t, server.Config{Workers: workerlease.Config{NewPools: workerlease.NewPoolsWait, LongestTTL: time.Hour}})
	s.send(503, "POST", "/worker/fleet", "")
	b := open(t, s.page("workers/fleet"), "status 503", "503 (Service")
	b.until("it counts down", `document.querySelector('main').textContent.includes('none for 59 min')`)
	s.send(201, "PUT", "/worker/fleet", `{"ttl_ms":600000}`)
	b.shows(".legend", "free: 1,024")
}

// storeAway is what a server answers whose Redis is away.
const storeAway = `{"title":"Redis does not answer","status":503,"detail":"Nothing was done.","code":"store-unavailable"}`

// answered is the page before a server whose answers are made by hand; "" is as an empty server
// would answer.
func answered(t *testing.T, answer func(path string) string) string {
	t.Helper()
	over := make(chan struct{})
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/console/api/session":
			fmt.Fprint(w, otherwise(answer(r.URL.Path), `{"role":"admin","names":[],"access":false,"readonly":false,"store":"embedded"}`))
		case r.URL.Path == "/console/api/history":
			fmt.Fprint(w, otherwise(answer(r.URL.Path), `{"until":"2026-11-21T15:53:40Z","step_ms":5000,"series":{"counters":[1,0]}}`))
		case strings.HasPrefix(r.URL.Path, "/console/"):
			console.Serve(w, r, strings.TrimPrefix(r.URL.Path, "/console/"))
		case r.URL.Path == "/events":
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprint(w, otherwise(answer(r.URL.Path), ": nothing\n\n"))
			_ = http.NewResponseController(w).Flush()
			select {
			case <-r.Context().Done():
			case <-over:
			}
		case r.URL.Path == "/readyz":
			fmt.Fprint(w, otherwise(answer(r.URL.Path), `{"ready":true,"store":"embedded","ack":0}`))
		default:
			text := otherwise(answer(r.URL.RequestURI()), `{"counters":[],"pools":[],"locks":[]}`)
			if text == storeAway {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
			fmt.Fprint(w, text)
		}
	}))
	t.Cleanup(func() {
		close(over)
		web.CloseClientConnections()
		web.Close()
	})
	return web.URL + "/console/"
}

func otherwise(text, empty string) string {
	if text == "" {
		return empty
	}
	return text
}
