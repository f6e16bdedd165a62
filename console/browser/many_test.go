package browser_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp/kb"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/logtest"
	"github.com/coatcheck/coatcheck/server"
)

// TestOperatorSettlesManyByTheOperationsPage settles the operations of one route, by what
// docs/operations.md says to press. Meanwhile somebody else settles one of them, and another one
// comes into doubt.
func TestOperatorSettlesManyByTheOperationsPage(t *testing.T) {
	p := book(t)
	var lines logtest.Text
	s := serve(t, server.Config{Access: p.Policy, Logger: lines.Logger()})
	admin := "Authorization: Bearer " + p.keys["admin"]
	payments, refunds := s.manyInDoubt("payments", 7, admin), s.manyInDoubt("refunds", 5, admin)
	b := open(t, s.page("counters"))
	b.types("dialog input", p.keys["admin"]+"\r")
	b.asksNothing()
	page := operatorsPage(t, "Many at once, as after an outage: press")
	page.presses(b, "In doubt")
	page.presses(b, "Settle many at once")
	page.says("Route or scope")
	b.chooses("Route or scope", "payments")
	for _, label := range []string{"Since (UTC)", "Until (UTC)"} {
		page.says(label)
		b.labelled(label)
	}
	page.presses(b, "Show them")
	b.shows("cc-many caption", "7 operations in doubt of payments")
	expect.Equal(t, "the operations that are shown", b.listed("cc-many tbody tr"), payments)
	meanwhile, later := payments[3], s.manyInDoubt("payments", 1, admin)[0]
	s.settle(meanwhile, `{"outcome":"completed","status":201,"reason":"a colleague"}`, admin)

	page.chooses(b, "What became of it", "It is not known, or it must not run")
	page.chooses(b, "What became of it", "It did not happen")
	page.chooses(b, "What became of it", "It happened")
	page.fills(b, "Status of the answer", "202")
	page.fills(b, "Why", "the ledger of Monday")
	page.presses(b, "Settle all shown")
	b.shows("dialog", "Settle 7 operations of payments: it happened?")
	b.shows("dialog", "status 202")
	b.shows("dialog", "none: it is empty")
	page.presses(b, "Go back")
	b.asksNothing()
	still := append(slices.Clone(refunds), later)
	expect.Equal(t, "the operations in doubt after going back", s.doubts(admin), slices.Concat(without(payments, meanwhile), still))
	eval[bool](b, `(window.progress = [], new MutationObserver(() => {
		const done = document.querySelector('cc-many .filled');
		if (!done) return;
		const text = `+"`${done.innerText.replace(/ \\(.*/, '')} ${document.querySelector('cc-many p > button').innerText}`"+`;
		if (window.progress.at(-1) !== text) window.progress.push(text);
	}).observe(document.querySelector('cc-many'), { childList: true, subtree: true, characterData: true }), true)`)
	page.presses(b, "Settle all shown")
	page.presses(b, "Settle for good")
	b.shows("#said", "6 of 7 operations settled: it happened. 1 left.")
	page.says("Stop")
	page.isDone()

	var progress []string
	for n := range 7 { // the result takes the place of 7 of 7
		progress = append(progress, fmt.Sprintf("%d of 7 Stop", n))
	}
	expect.Equal(t, "the progress that was shown", eval[[]string](b, "window.progress"), progress)
	expect.Equal(t, "the operations that are left", b.listed("cc-many tbody tr"), []string{meanwhile})
	b.shows("cc-many tbody", "charge-payments-3")
	b.shows("cc-many tbody", "Not in doubt any more: it is completed.")
	expect.Equal(t, "the operations in doubt after all were settled", s.doubts(admin), still)
	rows := "document.querySelectorAll('cc-doubts > .frame tbody tr')"
	b.until("the list has those in doubt", fmt.Sprintf("%s.length === %d", rows, len(still)))
	for _, operation := range slices.Concat(payments, still) {
		reason, outcome, n := `"the ledger of Monday"`, "completed", 1
		switch {
		case operation == meanwhile:
			reason = `"a colleague"`
		case slices.Contains(still, operation):
			n = 0
		}
		all := audits(&lines, operation)
		expect.Equal(t, "lines in the log about "+operation, len(all), n)
		for _, line := range all {
			expect.Contains(t, "the line about "+operation, line, "outcome="+outcome, "by=admin-person", "reason="+reason)
		}
	}
}

// What has changed since it was shown is left: the decision was not about that.
func TestOnlyTheDoubtThatWasShownIsSettled(t *testing.T) {
	s := serve(t, server.Config{})
	for _, fate := range []string{"as-shown", "refused", "running", "in-doubt-anew"} {
		s.claimOf("payments", fate, 100)
	}
	operations := s.named(4)
	b := open(t, s.page("doubt"))
	b.showsMany("payments", "4 operations in doubt of payments")
	s.settle(operations["refused"], `{"outcome":"refused"}`)
	for fate, lease := range map[string]int{"running": 600_000, "in-doubt-anew": 100} {
		s.settle(operations[fate], `{"outcome":"not-begun"}`)
		s.claimOf("payments", fate, lease)
	}
	again := operations["in-doubt-anew"]
	expect.Eventually(t, "the operation is in doubt again", func() bool { return slices.Contains(s.doubts(), again) })
	b.settlesAllShown("It did not happen")
	b.shows("#said", "1 of 4 operations settled: it did not happen. 3 left.")
	for fate, why := range map[string]string{
		"refused": "Not in doubt any more: it is refused", "running": "An attempt is running", "in-doubt-anew": "Another attempt came into doubt",
	} {
		find := "[...document.querySelectorAll('cc-many tbody tr')].find((row) => row.innerText.includes(" + quote(operations[fate]) + "))"
		expect.Contains(t, "why it is left: "+fate, eval[string](b, find+"?.innerText ?? ''"), why)
	}
	for fate, want := range map[string][]any{
		"as-shown": {"issued", "not-begun"}, "refused": {"refused", "refused"},
		"running": {"claimed", "not-begun"}, "in-doubt-anew": {"in-doubt", "not-begun"},
	} {
		now := s.send(200, "GET", "/operation/"+operations[fate], "")
		expect.Equal(t, "state and decision of "+fate, []any{now["state"], now["decision"]}, want)
	}
}

func TestSinceAndUntilChooseFromTheOperationsOfARoute(t *testing.T) {
	s := serve(t, server.Config{})
	s.claimOf("payments", "first", 100)
	since := s.since(s.named(1)["first"])
	expect.Eventually(t, "a later second has begun", func() bool { return time.Now().Truncate(time.Second).After(since) })
	s.claimOf("payments", "second", 100)
	operations := s.named(2)
	between := s.since(operations["second"]).Truncate(time.Second)
	b := open(t, s.page("doubt"))
	b.showsMany("payments", "2 operations in doubt of payments")
	fill := func(label string, at time.Time) {
		text := at.UTC().Format("2006-01-02T15:04:05")
		eval[bool](b, fmt.Sprintf(`(() => { const input = document.querySelector(%s); input.value = %s;
			return input.dispatchEvent(new Event('input', { bubbles: true })); })()`, quote(b.labelled(label)), quote(text)))
	}
	for _, one := range []struct {
		since, until time.Time
		want         []string
	}{
		{between, between.Add(time.Second), []string{operations["second"]}},
		{between.Add(-time.Hour), between, []string{operations["first"]}},
		{between.Add(-time.Hour), between.Add(time.Hour), []string{operations["first"], operations["second"]}},
	} {
		fill("Since (UTC)", one.since)
		fill("Until (UTC)", one.until)
		expect.Equal(t, "whether something is shown that is not chosen", b.has("cc-many caption"), false)
		b.click("cc-many form button")
		b.shows("cc-many caption", " in doubt of payments")
		expect.Equal(t, fmt.Sprintf("the operations since %v, until %v", one.since, one.until), b.listed("cc-many tbody tr"), one.want)
	}
	fill("Since (UTC)", between.Add(time.Hour))
	fill("Until (UTC)", between.Add(2*time.Hour))
	b.click("cc-many form button")
	b.shows("cc-many", "No operations in doubt of payments.")
	expect.Equal(t, "whether none can be settled", b.has("cc-many .settle"), false)
}

func TestManyAreSettledByTheKeyboardAlone(t *testing.T) {
	s := serve(t, server.Config{})
	operations := s.manyInDoubt("payments", 3)
	b := open(t, s.page("doubt"))
	b.shows("main", "Settle many at once")
	b.tabsTo("Settle many at once")
	b.press("\r")
	b.until("the routes are there", "document.querySelector('cc-many select')?.options.length === 2")
	b.tabsTo("Route or scope")
	b.press(kb.ArrowDown)
	b.tabsTo("Show them")
	b.press("\r")
	b.shows("cc-many caption", "3 operations in doubt of payments")
	b.tabsTo("3 operations in doubt of payments") // the frame of the list, which scrolls
	b.tabsTo("What became of it")
	b.press(kb.ArrowDown + kb.ArrowDown)
	b.tabsTo("Why")
	b.press("the ledger")
	b.tabsTo("Settle all shown")
	b.press("\r")
	b.shows("dialog", "Settle 3 operations of payments: it did not happen?")
	b.press("\r") // which means Go back
	b.asksNothing()
	expect.Equal(t, "the operations in doubt after Enter at the question", s.doubts(), operations)
	b.press("\r")
	b.shows("dialog", "Settle 3 operations")
	b.tabsTo("Settle for good")
	b.press("\r")
	b.shows("#said", "3 of 3 operations settled: it did not happen.")
	b.until("the result is read", "document.activeElement.tagName === 'H2' && document.activeElement.innerText.startsWith('3 of 3')")
	expect.Equal(t, "the operations in doubt", s.doubts(), []string{})
}

func TestManyAreSettledByAnAdminAlone(t *testing.T) {
	p := book(t)
	s := serve(t, server.Config{Access: p.Policy})
	s.claimOf("payments", "charge", 100, p.use())
	for _, role := range []string{"read", "use", "admin"} {
		b := open(t, s.page("doubt"), "403")
		b.types("dialog input", p.keys[role]+"\r")
		b.shows("cc-status", "You: "+role+"-person")
		if role == "admin" {
			b.shows("main tbody", "charge")
		} else {
			b.shows("main .trouble", "role")
		}
		expect.Equal(t, "whether role "+role+" may settle many", b.has("cc-many"), role == "admin")
		b.close()
	}
	s = serve(t, server.Config{Console: server.ConsoleConfig{Mode: server.ConsoleRead}})
	s.claimOf("payments", "charge", 100)
	b := open(t, s.page("doubt"))
	b.shows("main tbody", "charge")
	expect.Equal(t, "whether a page that changes nothing may settle many", b.has("cc-many"), false)
}

// A lost answer ends it: whether that operation is settled is not known, and the others are left.
func TestSettlingManyEndsWithALostAnswer(t *testing.T) {
	s := serve(t, server.Config{})
	operations := s.manyInDoubt("payments", 5)
	address := s.through(func(operation string, r *http.Request, pass http.Handler) http.Handler {
		if operation != operations[2] {
			return pass
		}
		pass.ServeHTTP(httptest.NewRecorder(), r)
		return http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	})
	b := open(t, address+"/console/#/doubt", "ERR_EMPTY_RESPONSE", "ERR_CONNECTION")
	b.showsMany("payments", "5 operations in doubt of payments")
	b.settlesAllShown("It did not happen")
	b.shows("#said", "The server does not answer. 2 of 5 operations settled: it did not happen. 3 left.")
	expect.Equal(t, "the operations that are left", b.listed("cc-many tbody tr"), operations[2:])
	b.shows("cc-many tbody", "It is not known whether it is settled.")
	expect.Equal(t, "the operations in doubt", s.doubts(), operations[3:])
}

func TestSettlingManyStopsOrLeavesWithTheView(t *testing.T) {
	for name, leave := range map[string]func(*tab){
		"Stop":         func(b *tab) { b.click("cc-many p button") },
		"another view": func(b *tab) { b.view("counters", "Counters") },
	} {
		s := serve(t, server.Config{})
		operations := s.manyInDoubt("payments", 4)
		reached, goOn := make(chan struct{}), make(chan struct{})
		address := s.through(func(operation string, _ *http.Request, pass http.Handler) http.Handler {
			if operation == operations[1] {
				close(reached)
				<-goOn
			}
			return pass
		})
		b := open(t, address+"/console/#/doubt")
		b.showsMany("payments", "4 operations in doubt of payments")
		b.settlesAllShown("It did not happen")
		<-reached
		b.shows("cc-many .filled", "1 of 4")
		leave(b)
		close(goOn)
		b.shows("#said", "2 of 4 operations settled: it did not happen. 2 left.")
		expect.Equal(t, "the operations in doubt after "+name, s.doubts(), operations[2:])
		b.close()
	}
}

// After an outage there are more than a rate limit lets through at once.
func TestSettlingManyWaitsForARateLimit(t *testing.T) {
	s := serve(t, server.Config{})
	operations := s.manyInDoubt("payments", 3)
	refused := 0
	address := s.through(func(operation string, _ *http.Request, pass http.Handler) http.Handler {
		if operation != operations[1] || refused == 2 {
			return pass
		}
		refused++
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
		})
	})
	b := open(t, address+"/console/#/doubt", "429")
	b.showsMany("payments", "3 operations in doubt of payments")
	b.settlesAllShown("It did not happen")
	b.shows("#said", "3 of 3 operations settled: it did not happen.")
	expect.Equal(t, "how often the limit refused one", refused, 2)
	expect.Equal(t, "the operations in doubt", s.doubts(), []string{})
}

// The server lists 1000 on a page at most.
func TestManyAreMoreThanAPageOfTheList(t *testing.T) {
	s := serve(t, server.Config{})
	for n := range 1001 {
		s.claimOf("payments", fmt.Sprint("charge-", n), 100)
	}
	expect.Eventually(t, "the last operation is in doubt", func() bool {
		next, _ := s.send(200, "GET", "/operation?state=in-doubt&n=1000", "")["next"].(string)
		return next != "" && len(s.send(200, "GET", "/operation?state=in-doubt&n=1000&cursor="+url.QueryEscape(next), "")["operations"].([]any)) == 1
	})
	b := open(t, s.page("doubt"))
	b.showsMany("payments", "1,001 operations in doubt of payments")
	expect.Equal(t, "the operations that are shown", b.count("cc-many tbody tr"), 1001)
	b.settlesAllShown("It did not happen")
	b.shows("#said", "1,001 of 1,001 operations settled: it did not happen.")
	expect.Equal(t, "the operations in doubt", s.doubts(), []string{})
}

// showsMany has the view of operations in doubt show all of a route, under that caption.
func (b *tab) showsMany(route, caption string) {
	b.Helper()
	b.click("cc-many summary")
	b.chooses("Route or scope", route)
	b.click("cc-many form button")
	b.shows("cc-many caption", caption)
}

// settlesAllShown settles what is shown.
func (b *tab) settlesAllShown(decision string) {
	b.Helper()
	b.chooses("What became of it", decision)
	b.types(b.labelled("Why"), "the ledger")
	b.click("cc-many .settle button")
	b.click("dialog .danger")
}

// listed are the operations that rows are about.
func (b *tab) listed(rows string) []string {
	b.Helper()
	return eval[[]string](b, fmt.Sprintf("[...document.querySelectorAll(%s)].map((row) => row.querySelector('a').innerText)", quote(rows)))
}

// tabsTo presses Tab until the control with that name has the focus.
func (b *tab) tabsTo(name string) {
	b.Helper()
	for range 60 {
		b.press("\t")
		if eval[string](b, `(() => { const at = document.activeElement;
			return at.labels?.[0]?.innerText ?? at.getAttribute('aria-label') ?? at.innerText; })()`) == name {
			return
		}
	}
	b.Fatalf("60 times Tab do not lead to %s", name)
}

// claimOf claims the operation of a request of a scope: it is in doubt when the lease has ended.
func (s *service) claimOf(scope, request string, leaseMs int, header ...string) {
	s.Helper()
	body := fmt.Sprintf(`{"key":%q,"scope":%q,"fingerprint":"f","lease_ms":%d}`, request, scope, leaseMs)
	s.send(200, "POST", "/operation/claim", body, append(header, "X-Request-Id: "+request)...)
}

// manyInDoubt makes operations of a scope, and returns their names once all are in doubt, the
// oldest first.
func (s *service) manyInDoubt(scope string, n int, header ...string) []string {
	s.Helper()
	before := s.doubts(header...)
	for i := range n {
		s.claimOf(scope, fmt.Sprintf("charge-%s-%d", scope, len(before)+i), 100, header...)
	}
	var now []string
	expect.Eventually(s, fmt.Sprintf("%d operations of %s are in doubt", n, scope), func() bool {
		now = without(s.doubts(header...), before...)
		return len(now) == n
	})
	return now
}

// named returns the operations in doubt by their requests, once there are so many.
func (s *service) named(n int) map[string]string {
	s.Helper()
	found := map[string]string{}
	expect.Eventually(s, fmt.Sprintf("%d operations are in doubt", n), func() bool {
		for _, one := range s.send(200, "GET", "/operation?state=in-doubt", "")["operations"].([]any) {
			operation := one.(map[string]any)
			found[operation["request_id"].(string)] = operation["operation"].(string)
		}
		return len(found) == n
	})
	return found
}

// doubts are the operations in doubt, the oldest first.
func (s *service) doubts(header ...string) []string {
	s.Helper()
	list := []string{}
	for _, one := range s.send(200, "GET", "/operation?state=in-doubt", "", header...)["operations"].([]any) {
		list = append(list, one.(map[string]any)["operation"].(string))
	}
	return list
}

func (s *service) since(operation string) time.Time {
	s.Helper()
	text, _ := s.send(200, "GET", "/operation/"+operation, "")["since"].(string)
	at, err := time.Parse(time.RFC3339, text)
	expect.NoError(s, "when "+operation+" came into doubt", err)
	return at
}

func (s *service) settle(operation, settlement string, header ...string) {
	s.Helper()
	s.send(204, "POST", "/operation/"+operation+"/settle", settlement, header...)
}

// through is the address of a proxy before the service. For each request that settles an operation
// it asks how to answer; pass is the service.
func (s *service) through(answer func(operation string, r *http.Request, pass http.Handler) http.Handler) string {
	target, err := url.Parse(s.url)
	expect.NoError(s, "the address of the service", err)
	pass := httputil.NewSingleHostReverseProxy(target)
	pass.Transport = &http.Transport{DisableKeepAlives: true}
	pass.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		operation, settles := strings.CutSuffix(strings.TrimPrefix(r.URL.Path, "/operation/"), "/settle")
		if !settles {
			pass.ServeHTTP(w, r)
			return
		}
		answer(operation, r, pass).ServeHTTP(w, r)
	}))
	s.Cleanup(func() {
		web.CloseClientConnections()
		web.Close()
	})
	return web.URL
}

// audits are the lines of the log about an operation that was settled.
func audits(lines *logtest.Text, operation string) (found []string) {
	for line := range strings.Lines(lines.String()) {
		if strings.Contains(line, `msg="an operation in doubt was settled"`) && strings.Contains(line, "operation="+operation+" ") {
			found = append(found, line)
		}
	}
	return found
}

func without(list []string, some ...string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(one string) bool { return slices.Contains(some, one) })
}
