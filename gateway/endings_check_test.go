//go:build check

package gateway

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/proctest"
)

const gatewayPage = "../docs/gateway.md"

// endingRoutes guards the payments of all servers. Nothing in it ends by itself while a test runs.
const endingRoutes = `routes: [{match: [POST /payments, PUT /payments],
lease_ms: 3600000, max_wait_ms: 100000, upstream_timeout_ms: 100000FIELDS}]`

// An ending is what becomes of an operation when something goes wrong behind the gateway: one
// server and event of a row of the page's table.
type ending struct {
	server, event string
	status        string // none: the server gives no whole answer, and the gateway says so
	handler       string // goes on, dies, ends, does not begin, or begins so many times
	repeat        string // in doubt, kept, runs
}

// endingRow is a row of the page's table.
var endingRow = regexp.MustCompile(`^\| (.+) \| (.+) \| (\d{3}|none|\d{3} or none) \| (.+) \| (in doubt|kept|runs) \|` +
	`(?: (?:(\d{3}|none), )?(?:(dies), )?(in doubt|kept|runs))? \|$`)

// endingsOf reads the page's table: the endings without the lines that the page has for a server,
// and those with them.
func endingsOf(t *testing.T, page string) (without, with []ending) {
	t.Helper()
	_, table, found := strings.Cut(page, "\n| behind the gateway | event | status | the handler | a repeat | with the lines |\n")
	if !found {
		t.Fatal("the page has no such table")
	}
	table, _, _ = strings.Cut(table, "\n\n")
	_, rows, _ := strings.Cut(table, "\n") // |---|
	for line := range strings.SplitSeq(rows, "\n") {
		row := endingRow.FindStringSubmatch(line)
		if row == nil {
			t.Fatalf("the page has a row that this test does not read: %s", line)
		}
		for server := range strings.SplitSeq(row[1], ", ") {
			for event := range strings.SplitSeq(row[2], ", ") {
				without = append(without, ending{server, event, row[3], row[4], row[5]})
				if row[8] != "" {
					with = append(with, ending{server, event, cmp.Or(row[6], row[3]), cmp.Or(row[7], row[4]), row[8]})
				}
			}
		}
	}
	return without, with
}

// book has what the handlers behind a gateway say, and holds those that wait: a handler asks for
// /begun/KEY, /wait/KEY and /ended/KEY.
type book struct {
	url string

	mu    sync.Mutex
	said  map[string]int
	gates map[string]chan struct{}
}

func newBook(t *testing.T) *book {
	t.Helper()
	b := &book{said: map[string]int{}, gates: map[string]chan struct{}{}}
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		what, key, _ := strings.Cut(strings.Trim(r.URL.Path, "/"), "/")
		if what == "wait" {
			b.wait(key, r.Context().Done())
			return
		}
		b.note(what, key)
	}))
	b.url = web.URL
	t.Cleanup(web.Close)
	return b
}

func (b *book) note(what, key string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.said[what+" "+key]++
}

func (b *book) count(what, key string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.said[what+" "+key]
}

// counts returns how often a handler has said something, by key.
func (b *book) counts(what string) map[string]int {
	b.mu.Lock()
	defer b.mu.Unlock()
	counts := map[string]int{}
	for said, times := range b.said {
		if key, found := strings.CutPrefix(said, what+" "); found {
			counts[key] = times
		}
	}
	return counts
}

func (b *book) gate(key string) chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.gates[key] == nil {
		b.gates[key] = make(chan struct{})
	}
	return b.gates[key]
}

// open lets the handler of a key go on.
func (b *book) open(key string) {
	gate := b.gate(key)
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case <-gate:
	default:
		close(gate)
	}
}

func (b *book) wait(key string, gone <-chan struct{}) {
	select {
	case <-b.gate(key):
	case <-gone:
	}
}

// behind is a server behind a gateway.
type behind struct {
	t     *testing.T
	book  *book
	app   *app // the service of a proxy
	door  *rig
	about string

	down, up func()        // stop and start the service
	ready    func()        // starts a server that an event has ended
	reload   func()        // the server, and wait until it has begun to
	set      func(*Config) // of the gateway
}

// Each server of the page's table ends as its rows say: without the page's lines, and with them. In
// doubt is listed, and nothing but "runs" runs again.
func TestServersEndAsThePageSays(t *testing.T) {
	text, err := os.ReadFile(gatewayPage)
	expect.NoError(t, "read the page", err)
	without, with := endingsOf(t, string(text))
	proctest.Packages(t, endingServices) // once, for all
	for _, set := range []struct {
		name    string
		endings []ending
		lines   lines
	}{{"without lines", without, nil}, {"with lines", with, linesOf(string(text))}} {
		for server, endings := range byServer(set.endings) {
			t.Run(server+" "+set.name, func(t *testing.T) {
				t.Parallel()
				b := newBehind(t, server, set.lines)
				for _, e := range endings {
					b.meets(e)
				}
			})
		}
	}
	for server := range endingServers {
		if !slices.ContainsFunc(without, func(e ending) bool { return e.server == server }) {
			t.Errorf("the page has no row of %s", server)
		}
	}
}

func byServer(endings []ending) map[string][]ending {
	sorted := map[string][]ending{}
	for _, e := range endings {
		sorted[e.server] = append(sorted[e.server], e)
	}
	return sorted
}

// meets has the event happen to the first request with a key, and repeats that when all is well.
func (b *behind) meets(e ending) {
	b.t.Helper()
	event, known := endingEvents[e.event]
	if !known {
		b.t.Fatalf("the page has an event that this test does not know: %s", e.event)
	}
	about := fmt.Sprintf("%s, %s", b.about, e.event)
	key := strings.ReplaceAll(e.event, " ", "-")
	b.ready()
	listed := b.listed()
	after := func() {}
	if event.prepare != nil {
		after = event.prepare(b, key)
	}
	headers := []string{"Idempotency-Key: " + key}
	method, body := cmp.Or(event.method, "POST"), cmp.Or(event.body, `{"amount":1}`)
	if event.noBody {
		body = ""
	} else {
		headers = append(headers, "Content-Type: application/json")
	}
	first := b.door.do(method, "/payments", body, append(headers, "X-Event: "+event.name)...)
	after()
	b.book.open(key)
	got := strconv.Itoa(first.status)
	if first.problem().Code == api.OutcomeUnknown {
		got = "none"
	}
	if !slices.Contains(strings.Split(e.status, " or "), got) {
		b.t.Errorf("%s: the first answer: got %s %.300q, want %s", about, got, first.body, e.status)
	}
	begun := b.wantRuns(about, key, e.handler)

	for n := range 2 {
		again := b.door.do(method, "/payments", body, headers...)
		asked := fmt.Sprintf("%s: repeat %d", about, n+1)
		switch e.repeat {
		case "kept":
			b.expect(asked, again, strconv.Itoa(first.status))
			expect.Equal(b.t, asked+": the body", again.body, first.body)
			expect.Equal(b.t, asked+": a replay", again.header.Get("Idempotent-Replayed"), "true")
		case "in doubt":
			b.expect(asked, again, "409")
			expect.Equal(b.t, asked+": the code", again.problem().Code, api.IdempotencyUnknown)
		case "runs":
			b.expect(asked, again, "201")
		}
	}
	want := map[string]int{"runs": 1}[e.repeat]
	expect.Equal(b.t, about+": how often the handler has begun", b.book.count("begun", key), begun+want)
	doubts := map[string]int{"in doubt": 1}[e.repeat]
	expect.Equal(b.t, about+": operations in doubt that are listed", b.listed()-listed, doubts)
}

// wantRuns wants a handler to have done what the page says, and returns how often it began.
func (b *behind) wantRuns(about, key, handler string) (begun int) {
	b.t.Helper()
	ends := 0
	switch handler {
	case "does not begin":
	case "goes on", "ends":
		begun, ends = 1, 1
	case "dies":
		begun = 1
	case "runs twice":
		begun = 2
	case "runs four times":
		begun = 4
	default:
		b.t.Fatalf("%s: the page says of the handler %q, which this test does not know", about, handler)
	}
	if ends > 0 {
		expect.Eventually(b.t, about+": the handler has come to its end", func() bool { return b.book.count("ended", key) == ends })
	}
	expect.Equal(b.t, about+": how often the handler has begun at first", b.book.count("begun", key), begun)
	return begun
}

func (b *behind) expect(asked string, got answer, status string) {
	b.t.Helper()
	if strconv.Itoa(got.status) != status {
		b.t.Errorf("%s: got %d %.300q, want %s", asked, got.status, got.body, status)
	}
}

// listed returns how many operations in doubt an operator sees.
func (b *behind) listed() int {
	b.t.Helper()
	list, _, err := b.door.g.tokens.List(b.t.Context(), "", "", 100)
	expect.NoError(b.t, "list the operations in doubt", err)
	return len(list)
}

// A service dies at every third request and is down now and then, behind each proxy with the page's
// lines. Requests that the proxy says were not sent run again; no key has begun twice.
func TestProxiesFreeNoKeyThatHasBegun(t *testing.T) {
	text, err := os.ReadFile(gatewayPage)
	expect.NoError(t, "read the page", err)
	proctest.Packages(t, endingServices)
	for _, server := range []string{"nginx", "HAProxy", "Apache", "Varnish", "Caddy"} {
		t.Run(server, func(t *testing.T) {
			t.Parallel()
			b := newBehind(t, server, linesOf(string(text)))
			stop := b.disturb()
			freed, doubts := b.payments(server != "Varnish")
			stop()
			begun := b.book.counts("begun")
			for key, times := range begun {
				if times > 1 {
					t.Errorf("%s: %s has begun %d times, want once at most", server, key, times)
				}
			}
			t.Logf("%s: %d keys have begun, %d are in doubt, %d were answered after they had been freed", server, len(begun), doubts, freed)
			expect.Equal(t, "keys are in doubt, else this test says nothing", doubts > 0, true)
			expect.Equal(t, "keys were freed, but by Varnish", freed > 0, server != "Varnish")
		})
	}
}

// disturb stops and starts the service until its result is called.
func (b *behind) disturb() (stop func()) {
	stopped, over := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-over:
				return
			case <-time.After(rand.N(60 * time.Millisecond)):
				b.app.stop()
				time.Sleep(rand.N(30 * time.Millisecond))
				b.app.start()
			}
		}
	}()
	return func() {
		close(over)
		<-stopped
	}
}

// payments pays under many keys, each until it has its answer or is in doubt, and at least until
// some are in doubt and, where a server frees any, some were freed and answered then.
func (b *behind) payments(frees bool) (freed, doubts int64) {
	const clients, least, most, tries = 8, 10, 100, 6
	var all sync.WaitGroup
	var again, doubted atomic.Int64
	enough := func() bool { return doubted.Load() > 0 && (again.Load() > 0 || !frees) }
	for client := range clients {
		all.Go(func() {
			for n := 0; n < least || n < most && !enough(); n++ {
				key := fmt.Sprintf("Idempotency-Key: key-%d-%d", client, n)
				for try := range tries {
					got := b.door.do("POST", "/payments", `{"amount":1}`, key, "X-Event: chance")
					if got.status == http.StatusCreated {
						again.Add(min(int64(try), 1))
						break
					}
					if got.status == http.StatusConflict {
						doubted.Add(1)
						break
					}
				}
			}
		})
	}
	all.Wait()
	return again.Load(), doubted.Load()
}
