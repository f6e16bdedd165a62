package server_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coatcheck/coatcheck/access"
	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/server"
	"github.com/coatcheck/coatcheck/workerlease"
)

// message is one of an event stream.
type message struct{ kind, id, data string }

// listening is a client of GET /events.
type listening struct {
	*testing.T

	status int
	header http.Header
	lines  *bufio.Scanner
	close  func()
	all    strings.Builder
}

func (s *service) listen(t *testing.T, header ...string) *listening {
	t.Helper()
	return s.listenAt(t, "/events", header...)
}

func (s *service) listenAt(t *testing.T, path string, header ...string) *listening {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.addr+path, http.NoBody)
	expect.NoError(t, "GET /events", err)
	for _, one := range header {
		name, value, _ := strings.Cut(one, ": ")
		request.Header.Set(name, value)
	}
	response, err := (&http.Transport{DisableKeepAlives: true, DialContext: s.dial}).RoundTrip(request)
	expect.NoError(t, "GET /events", err)
	l := &listening{T: t, status: response.StatusCode, header: response.Header, lines: bufio.NewScanner(response.Body)}
	l.close = func() {
		cancel()
		response.Body.Close()
	}
	t.Cleanup(l.close)
	return l
}

// next is the next message; a comment is one of kind ":". ok is false at the end of the stream.
func (l *listening) next() (m message, ok bool) {
	for l.lines.Scan() {
		line := l.lines.Text()
		l.all.WriteString(line + "\n")
		name, value, _ := strings.Cut(line, ": ")
		switch {
		case line == "" && m != message{}:
			return m, true
		case strings.HasPrefix(line, ":"):
			m.kind = ":"
		case name == "event":
			m.kind = value
		case name == "id":
			m.id = value
		case name == "data":
			m.data = value
		}
	}
	return m, false
}

// until reads until a message of a kind; "" are events.
func (l *listening) until(kind string) message {
	l.Helper()
	for {
		m, ok := l.next()
		if !ok {
			l.Fatalf("the stream ends before %q: %v\n%s", kind, l.lines.Err(), l.all.String())
		}
		if m.kind == kind && (kind != "" || m.data != "") {
			return m
		}
	}
}

func (l *listening) event() (event api.Event, id string) {
	l.Helper()
	m := l.until("")
	if err := strictly([]byte(m.data), &event); err != nil {
		l.Fatalf("GET /events: the data %s: %v", m.data, err)
	}
	return event, m.id
}

// wantEvent reads the next event, and checks all of it but when it was.
func (l *listening) wantEvent(what string, want api.Event) {
	l.Helper()
	got, _ := l.event()
	if got.At.IsZero() {
		l.Errorf("%s: got event %+v, want one that says when", what, got)
	}
	got.At, got.EventBy = api.At(time.Time{}), api.EventBy{}
	expect.Equal(l, what+": the event that tells of it", got, want)
}

// wantEnd reads to the end of the stream, which says why it ends.
func (l *listening) wantEnd(reason string) {
	l.Helper()
	expect.Equal(l, "GET /events: the last message", l.until("end").data, `{"reason":"`+reason+`"}`)
	if m, more := l.next(); more {
		l.Errorf("GET /events: after the end comes %+v, want nothing", m)
	}
}

// events reads that many and says them short.
func (l *listening) events(n int) (short []string) {
	l.Helper()
	for range n {
		event, _ := l.event()
		short = append(short, strings.TrimSpace(event.Kind+" "+event.Name))
	}
	return short
}

func TestWhatHappensIsToldWithoutSecrets(t *testing.T) {
	t.Parallel()
	storetest.Each(t, func(t *testing.T, store *redisstore.Store) {
		s := serve(t, server.Config{Store: store, Dev: true})
		l := s.listen(t)
		expect.MustEqual(t, "GET /events: status", l.status, 200)
		expect.Equal(t, "GET /events: Content-Type", l.header.Get("Content-Type"), "text/event-stream")
		expect.Equal(t, "GET /events: Cache-Control", l.header.Get("Cache-Control"), "no-store")
		expect.Equal(t, "GET /events: has an X-Request-Id", l.header.Get("X-Request-Id") != "", true)
		l.wantHello()
		secrets := append(s.doToLeases(t, l), s.doToTokens(t)...)
		l.wantEvent("a claim of a token that is in doubt", api.Event{Kind: "operation.in-doubt"})
		want := map[string]int64{
			"token.issued": 2, "operation.claimed": 3, "operation.replayed": 2, "operation.completed": 2, "operation.in-doubt": 1, "lock.granted": 2,
		}
		for told := (api.EventTally{}); !contains(told.Tally, want); {
			told = api.EventTally{}
			if data := l.until("tally").data; strictly([]byte(data), &told) != nil {
				t.Fatalf("GET /events: got tally %s, want %v", data, want)
			}
		}
		l.close()
		for _, secret := range secrets {
			if strings.Contains(l.all.String(), secret) {
				t.Errorf("GET /events: the stream holds the secret %q:\n%s", secret, l.all.String())
			}
		}
	})
}

// contains reports whether all has these numbers.
func contains(all, some map[string]int64) bool {
	for name, n := range some {
		if all[name] != n {
			return false
		}
	}
	return true
}

func (l *listening) wantHello() {
	l.Helper()
	data := l.until("hello").data
	hello := api.EventHello{}
	if err := strictly([]byte(data), &hello); err != nil {
		l.Fatalf("GET /events: hello %s: %v", data, err)
	}
	if hello.Scope != "process" || hello.Kept < 1 || len(hello.Kinds) < 10 || hello.Since.IsZero() || hello.Tally["token.issued"] != 0 {
		l.Errorf("GET /events: got hello %s, want scope process, a time, how many are kept, ten kinds or more, and no tokens", data)
	}
}

// doToLeases does to counters, workers and locks what a listener is told, and returns the secrets
// that were in it.
func (s *service) doToLeases(t *testing.T, l *listening) (secrets []string) {
	t.Helper()
	s.do(t, "PUT", "/counter/c", `{"value":7}`)
	s.do(t, "DELETE", "/counter/c", "")
	s.do(t, "PUT", "/worker/declared", "")
	worker := must[api.WorkerLease](t, s, 201, "POST", "/worker/p", `{"identity":"box","ttl_ms":3600000}`)
	s.do(t, "PUT", "/worker/p/0", "", "Lease-Token: AAAAAAAAAAAAAAAAAAAAAA")
	s.do(t, "DELETE", "/worker/p/0", "", "Lease-Token: "+worker.Lease)
	lock := must[api.LockGranted](t, s, 201, "POST", "/lock/l", `{"owner":"me","ttl_ms":3600000}`)
	s.do(t, "DELETE", "/lock/l", "", "Lease-Token: "+lock.Lease)
	s.do(t, "DELETE", "/lock/l", "", "Lease-Token: "+lock.Lease)
	again := must[api.LockGranted](t, s, 201, "POST", "/lock/l", `{"ttl_ms":3600000}`)
	s.do(t, "DELETE", fmt.Sprintf("/lock/l?force=%d", again.Fence), "")
	want := []string{
		"counter.set c", "counter.removed c", "pool.created declared", "worker.granted p", "worker.lost p", "worker.released p",
		"lock.granted l", "lock.released l", "lock.lost l", "lock.granted l", "lock.broken l",
	}
	expect.Equal(t, "GET /events: what was done to a counter, a worker id and a lock", l.events(len(want)), want)
	return []string{worker.Lease, lock.Lease, again.Lease}
}

// doToTokens completes, replays and loses tokens, and returns the secrets that were in it.
func (s *service) doToTokens(t *testing.T) (secrets []string) {
	t.Helper()
	token := s.issue(t, "")
	claimed := s.claim(t, token, forAnHour)
	s.do(t, "POST", "/token/"+token+"/complete", `{"status":200,"headers":{},"body_base64":""}`, "Lease-Token: "+claimed.Lease)
	s.do(t, "POST", "/token/"+token+"/claim", forAnHour)
	s.do(t, "POST", "/payments", payment, "Idempotency-Key: order-secret-1")
	s.do(t, "POST", "/payments", payment, "Idempotency-Key: order-secret-1")
	doubtful := s.issue(t, "")
	s.claim(t, doubtful, `{"fingerprint":"f","lease_ms":100}`)
	expect.Eventually(t, "the claim lapses", func() bool { return s.state(t, doubtful) == "in-doubt" })
	s.do(t, "POST", "/token/"+doubtful+"/claim", `{"fingerprint":"f"}`)
	return []string{token, doubtful, claimed.Lease, "order-secret-1"}
}

func TestGrantTellsWhoAndWithWhichFence(t *testing.T) {
	t.Parallel()
	s := onEmbedded(t)
	l := s.listen(t)
	worker := must[api.WorkerLease](t, s, 201, "POST", "/worker/p", `{"identity":"box"}`)
	l.wantEvent("POST /worker/p", api.Event{Kind: "worker.granted", Name: "p", WorkerID: new(0), Fence: worker.Fence, Holder: "box"})
	lock := must[api.LockGranted](t, s, 201, "POST", "/lock/l", `{"owner":"me"}`)
	l.wantEvent("POST /lock/l", api.Event{Kind: "lock.granted", Name: "l", Fence: lock.Fence, Holder: "me"})
	s.do(t, "PUT", "/counter/c", `{"value":-7}`)
	l.wantEvent("PUT /counter/c", api.Event{Kind: "counter.set", Name: "c", Value: new(int64(-7))})
}

func TestListenerThatComesBackGetsWhatItMissed(t *testing.T) {
	t.Parallel()
	s := onEmbedded(t)
	set := func(key string) { s.do(t, "PUT", "/counter/"+key, `{"value":1}`) }
	set("before")
	l := s.listen(t)
	set("a")
	got, id := l.event()
	expect.MustEqual(t, "GET /events: the first event after the stream began", got.Name, "a")
	l.close()
	set("b")
	set("c")
	expect.Equal(t, "GET /events with Last-Event-ID "+id, s.listen(t, "Last-Event-ID: "+id).events(2), []string{"counter.set b", "counter.set c"})
	life, _, _ := strings.Cut(id, ".")
	for _, unknown := range []string{"x.1", "x", life + ".99999", life + ".-1", "."} {
		asked := "GET /events with Last-Event-ID " + unknown
		l := s.listen(t, "Last-Event-ID: "+unknown)
		expect.Equal(t, asked+": what was missed", l.until("missed").data, "{}")
		set("d")
		got, _ := l.event()
		expect.Equal(t, asked+": the next event", got.Name, "d")
		l.close()
	}
}

// A page that is opened after the fact shows what has happened: only as much as was asked for, and
// nothing twice to one that comes back.
func TestNewListenerGetsTheBacklogThatItAsksFor(t *testing.T) {
	t.Parallel()
	s := onEmbedded(t)
	for i := range 5 {
		s.server.Tell(fmt.Sprint("c", i))
	}
	l := s.listenAt(t, "/events?backlog=3")
	var id string
	for i := 2; i < 5; i++ {
		var event api.Event
		event, id = l.event()
		expect.Equal(t, "an event of the backlog", event.Name, fmt.Sprint("c", i))
	}
	l = s.listenAt(t, "/events?backlog=3", "Last-Event-ID: "+id)
	s.server.Tell("next")
	event, _ := l.event()
	expect.Equal(t, "the first event of one that comes back", event.Name, "next")
	for _, wrong := range []string{"-1", "1025", "x"} {
		problem := checkProblem(t, s.do(t, "GET", "/events?backlog="+wrong, ""), api.InvalidRequest)
		expect.Contains(t, "the refusal of backlog="+wrong, problem.Detail, "backlog", "1024")
	}
}

// An operator who asks why ids are refused finds the pool, the reason and the command.
func TestPoolThatWaitsIsListedWithTheWayOut(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	store := storetest.Open(t, redisstore.Config{URL: redis.URL()})
	s := serve(t, server.Config{Store: store, Workers: workerlease.Config{NewPools: workerlease.NewPoolsWait}})
	problem := checkProblem(t, s.do(t, "POST", "/worker/fleet", ""), api.PoolQuarantined)
	expect.Contains(t, "the refusal", problem.Title+": "+problem.Detail, "Nothing is granted yet", "new to this Redis", "coatcheck worker create fleet")
	shown := s.do(t, "GET", "/worker/fleet", "")
	checkProblem(t, shown, api.PoolQuarantined)
	shown.wantRetryAfter(t, 1, 3601)
	if text := problem.Title + problem.Detail; strings.Contains(text, "lost") {
		t.Errorf("the first id of a fresh Redis is refused with %q, want nothing of a loss", text)
	}
	page := must[api.WorkerPools](t, s, 200, "GET", "/worker", "")
	if len(page.Pools) != 0 || len(page.Waiting) != 1 {
		t.Fatalf("GET /worker: got %+v, want one pool that waits", page)
	}
	waits := page.Waiting[0]
	expect.Equal(t, "the pool that waits", []any{waits.Pool, waits.New, waits.WaitMs > 0}, []any{"fleet", true, true})
	expect.Contains(t, "the reason", waits.Reason, "new to this Redis", "coatcheck worker create fleet")
	event, _ := s.listenAt(t, "/events?backlog=1024").event()
	expect.Equal(t, "the event", []any{event.Kind, event.Name, event.New}, []any{"pool.quarantined", "fleet", true})
	expect.Contains(t, "the event's reason", event.Reason, "coatcheck worker create fleet")

	must[api.WorkerPool](t, s, 201, "PUT", "/worker/fleet", "")
	page = must[api.WorkerPools](t, s, 200, "GET", "/worker", "")
	expect.Equal(t, "GET /worker after the pool was declared", []int{len(page.Pools), len(page.Waiting)}, []int{1, 0})
}

// dialDeaf connects a client that asks for the events and takes next to nothing.
func (s *service) dialDeaf(t *testing.T) net.Conn {
	t.Helper()
	dialer := net.Dialer{Control: func(_, _ string, raw syscall.RawConn) error {
		var err error
		return errors.Join(raw.Control(func(fd uintptr) { err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4096) }), err)
	}}
	conn, err := dialer.DialContext(t.Context(), "tcp", s.addr)
	expect.NoError(t, "connecting to the service", err)
	t.Cleanup(func() { conn.Close() })
	fmt.Fprintf(conn, "GET /events HTTP/1.1\r\nHost: %s\r\n\r\n", s.addr)
	return conn
}

// A client that reads nothing holds up neither those that do nor the work.
func TestListenerThatDoesNotReadHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	s := onEmbedded(t)
	deaf := s.dialDeaf(t)
	expect.Eventually(t, "the deaf client listens", func() bool { return s.server.Listeners() == 1 })
	l := s.listen(t)
	l.until("hello")
	long := strings.Repeat("k", 190)
	for round := range 5 { // more than the buffers of a connection take
		for i := range 1000 {
			s.server.Tell(fmt.Sprint(long, round, ".", i))
		}
		for got := (api.Event{}); got.Name != fmt.Sprint(long, round, ".", 999); {
			got, _ = l.event()
		}
	}
	s.do(t, "PUT", "/counter/c", `{"value":1}`)
	if strings.Contains(l.all.String(), "event: missed") {
		t.Error("GET /events: a client that reads has missed something, because another does not read")
	}
	late := bufio.NewScanner(deaf)
	for late.Scan() && late.Text() != "event: missed" { // or the server has given it up
		if strings.Contains(late.Text(), `"c"`) {
			t.Fatal("the deaf client has heard everything: this test shows nothing")
		}
	}
}

func TestStreamOutlivesTheTimeOfARequestAndEndsWithTheServer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, stop := serveInside(t, server.Config{Store: storetest.Open(t, redisstore.Config{}), RequestTimeout: time.Second})
		l := s.listen(t)
		l.until("hello")
		for range 20 {
			// an answer of another kind has RequestTimeout and 5 s in all
			time.Sleep(3 * time.Second)
			s.do(t, "PUT", "/counter/c", `{"value":1}`)
			l.event()
		}
		stop()
		l.wantEnd("stopping")
	})
}

// accessOf is a book with a key for each role and names, in a file that can be written anew.
func accessOf(t *testing.T, callers ...access.Record) (book *access.Policy, keys []string, file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "access.yaml")
	text := "keys:\n"
	for _, who := range callers {
		key := access.NewKey()
		keys = append(keys, "Authorization: Bearer "+key.Text())
		text += fmt.Sprintf("  - {id: %s, sha256: %s, principal: p, role: %s", key.ID, key.Hash(), who.Role)
		if len(who.Names) > 0 {
			text += ", prefixes: ['" + strings.Join(who.Names, "', '") + "']"
		}
		text += "}\n"
	}
	return openPolicy(t, file, text), keys, file
}

// openPolicy opens a file of keys that holds this text.
func openPolicy(t *testing.T, file, text string) *access.Policy {
	t.Helper()
	expect.NoError(t, "writing the file of keys", os.WriteFile(file, []byte(text), 0o600))
	book, err := access.Open(t.Context(), access.Config{File: file})
	if err != nil {
		t.Fatalf("opening the file of keys: %v\n%s", err, text)
	}
	t.Cleanup(book.Close)
	return book
}

func TestListenersHearOnlyOfTheirNames(t *testing.T) {
	t.Parallel()
	book, keys, _ := accessOf(t, access.Record{Role: access.Admin}, access.Record{Role: access.Read, Names: access.Names{"orders*", "jobs"}})
	s := serve(t, server.Config{Store: storetest.Open(t, redisstore.Config{}), Access: book})
	expect.Equal(t, "GET /events without a key: status", s.listen(t).status, 401)
	all, some := s.listen(t, keys[0]), s.listen(t, keys[1])
	all.until("hello")
	some.until("hello")
	for _, name := range []string{"bills", "orders-1", "jobs", "jobs-2", "orders"} {
		s.do(t, "PUT", "/counter/"+name, `{"value":1}`, keys[0])
	}
	token := must[api.TokenIssued](t, s, 201, "POST", "/token", "", keys[0]).Token
	must[api.Claimed](t, s, 200, "POST", "/token/"+token+"/claim", `{"fingerprint":"f","lease_ms":100}`, keys[0])
	expect.Eventually(t, "the claim lapses", func() bool {
		return must[api.TokenStatus](t, s, 200, "GET", "/token/"+token, "", keys[0]).State == "in-doubt"
	})
	s.do(t, "POST", "/token/"+token+"/claim", `{"fingerprint":"f"}`, keys[0])
	s.do(t, "PUT", "/counter/orders-last", `{"value":1}`, keys[0])
	expect.Equal(t, "GET /events by an admin", all.events(7), []string{
		"counter.set bills", "counter.set orders-1", "counter.set jobs", "counter.set jobs-2", "counter.set orders", "operation.in-doubt", "counter.set orders-last",
	})
	expect.Equal(t, "GET /events by one who may read orders* and jobs", some.events(4), []string{
		"counter.set orders-1", "counter.set jobs", "counter.set orders", "counter.set orders-last",
	})
}

func TestStreamEndsWithTheRightToIt(t *testing.T) {
	t.Parallel()
	book, keys, file := accessOf(t, access.Record{Role: access.Read})
	s := serve(t, server.Config{Store: storetest.Open(t, redisstore.Config{}), Access: book}, func(s *server.Server) { s.SetBeat(time.Second) })
	l := s.listen(t, keys[0])
	l.until(":") // in silence it hears that the server is still there
	expect.NoError(t, "taking all keys away", errors.Join(os.WriteFile(file, []byte("keys: []\n"), 0o600), book.Reload(t.Context())))
	l.wantEnd("unauthorized")
}

// A client that is connected and takes nothing, such as one whose machine has gone, does not keep
// its place: it is dropped as soon as it cannot be written to any more.
func TestListenerThatTakesNothingLosesItsPlace(t *testing.T) {
	t.Parallel()
	s := serve(t, server.Config{Store: storetest.Open(t, redisstore.Config{})}, func(s *server.Server) { s.SetPatience(50 * time.Millisecond) })
	for range 3 {
		s.dialDeaf(t)
	}
	expect.Eventually(t, "all of them listen", func() bool { return s.server.Listeners() == 3 })
	long := strings.Repeat("k", 190)
	expect.Eventually(t, "none of them has a place", func() bool {
		for i := range 100 { // until the operating system takes no more for them
			s.server.Tell(fmt.Sprint(long, i))
		}
		return s.server.Listeners() == 0
	})
	l := s.listen(t)
	l.until("hello")
	expect.Equal(t, "GET /events after those who did not read: status", l.status, 200)
}
