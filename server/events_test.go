package server_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/access"
	"github.com/coatcheck/coatcheck/internal/storetest"
	"github.com/coatcheck/coatcheck/internal/wire"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/server"
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
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.addr+"/events", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range header {
		name, value, _ := strings.Cut(one, ": ")
		request.Header.Set(name, value)
	}
	response, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
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

func (l *listening) event() (event wire.Event, id string) {
	l.Helper()
	m := l.until("")
	if err := strictly([]byte(m.data), &event); err != nil {
		l.Fatalf("%v: %s", err, m.data)
	}
	return event, m.id
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
	storetest.Each(t, func(t *testing.T, store *redisstore.Store) {
		s := serve(t, server.Config{Store: store, Dev: true})
		l := s.listen(t)
		if l.status != 200 || l.header.Get("Content-Type") != "text/event-stream" || l.header.Get("Cache-Control") != "no-store" || l.header.Get("X-Request-Id") == "" {
			t.Fatalf("%d %v", l.status, l.header)
		}
		hello := wire.EventHello{}
		if err := strictly([]byte(l.until("hello").data), &hello); err != nil || hello.Scope != "process" || hello.Kept < 1 || len(hello.Kinds) < 10 || hello.Since.IsZero() || hello.Tally["token.issued"] != 0 {
			t.Errorf("%+v %v", hello, err)
		}
		s.do(t, "PUT", "/counter/c", `{"value":7}`)
		s.do(t, "DELETE", "/counter/c", "")
		s.do(t, "PUT", "/worker/declared", "")
		worker := must[wire.WorkerLease](t, s, 201, "POST", "/worker/p", `{"identity":"box"}`)
		s.do(t, "PUT", "/worker/p/0", "", "Lease-Token: AAAAAAAAAAAAAAAAAAAAAA")
		s.do(t, "DELETE", "/worker/p/0", "", "Lease-Token: "+worker.Lease)
		lock := must[wire.LockGranted](t, s, 201, "POST", "/lock/l", `{"owner":"me"}`)
		s.do(t, "DELETE", "/lock/l", "", "Lease-Token: "+lock.Lease)
		s.do(t, "DELETE", "/lock/l", "", "Lease-Token: "+lock.Lease)
		again := must[wire.LockGranted](t, s, 201, "POST", "/lock/l", "")
		s.do(t, "DELETE", fmt.Sprintf("/lock/l?force=%d", again.Fence), "")
		want := []string{
			"counter.set c", "counter.removed c", "pool.created declared", "worker.granted p", "worker.lost p", "worker.released p",
			"lock.granted l", "lock.released l", "lock.lost l", "lock.granted l", "lock.broken l",
		}
		if got := l.events(len(want)); !slices.Equal(got, want) {
			t.Errorf("got  %q\nwant %q", got, want)
		}

		token := s.issue(t, "")
		claimed := s.claim(t, token, `{"fingerprint":"f"}`)
		s.do(t, "POST", "/token/"+token+"/complete", `{"status":200,"headers":{},"body_base64":""}`, "Lease-Token: "+claimed.Lease)
		s.do(t, "POST", "/token/"+token+"/claim", `{"fingerprint":"f"}`)
		payment := `{"amount":1,"currency":"EUR","to":"a"}`
		s.do(t, "POST", "/payments", payment, "Idempotency-Key: order-secret-1")
		s.do(t, "POST", "/payments", payment, "Idempotency-Key: order-secret-1")
		doubtful := s.issue(t, "")
		s.claim(t, doubtful, `{"fingerprint":"f","lease_ms":100}`)
		eventually(t, "the claim lapses", func() bool { return s.state(t, doubtful) == "in-doubt" })
		s.do(t, "POST", "/token/"+doubtful+"/claim", `{"fingerprint":"f"}`)
		if got, _ := l.event(); got.Kind != "token.in-doubt" || got.Name != "" {
			t.Errorf("%+v", got)
		}
		for {
			told := wire.EventTally{}
			if err := strictly([]byte(l.until("tally").data), &told); err != nil {
				t.Fatal(err)
			}
			n := told.Tally
			if n["token.issued"] == 2 && n["token.claimed"] == 3 && n["token.replayed"] == 2 && n["token.completed"] == 1 && n["token.in-doubt"] == 1 && n["lock.granted"] == 2 {
				break
			}
		}
		l.close()
		for _, secret := range []string{token, doubtful, worker.Lease, lock.Lease, again.Lease, claimed.Lease, "order-secret-1"} {
			if strings.Contains(l.all.String(), secret) {
				t.Errorf("the stream holds %q", secret)
			}
		}
	})
}

func TestGrantTellsWhoAndWithWhichFence(t *testing.T) {
	s := serve(t, server.Config{Store: storetest.Open(t, redisstore.Config{URL: "embedded:"})})
	l := s.listen(t)
	worker := must[wire.WorkerLease](t, s, 201, "POST", "/worker/p", `{"identity":"box"}`)
	if got, _ := l.event(); *got.WorkerID != 0 || got.Fence != worker.Fence || got.Holder != "box" || got.At.IsZero() {
		t.Errorf("%+v", got)
	}
	lock := must[wire.LockGranted](t, s, 201, "POST", "/lock/l", `{"owner":"me"}`)
	if got, _ := l.event(); got.Fence != lock.Fence || got.Holder != "me" {
		t.Errorf("%+v", got)
	}
	s.do(t, "PUT", "/counter/c", `{"value":-7}`)
	if got, _ := l.event(); *got.Value != -7 {
		t.Errorf("%+v", got)
	}
}

func TestListenerThatComesBackGetsWhatItMissed(t *testing.T) {
	s := serve(t, server.Config{Store: storetest.Open(t, redisstore.Config{URL: "embedded:"})})
	set := func(key string) { s.do(t, "PUT", "/counter/"+key, `{"value":1}`) }
	set("before")
	l := s.listen(t)
	set("a")
	got, id := l.event()
	if got.Name != "a" {
		t.Fatalf("%+v: what was before is told", got)
	}
	l.close()
	set("b")
	set("c")
	if back := s.listen(t, "Last-Event-ID: "+id).events(2); !slices.Equal(back, []string{"counter.set b", "counter.set c"}) {
		t.Errorf("%q", back)
	}
	for _, unknown := range []string{"x.1", "x", strings.Split(id, ".")[0] + ".99999", strings.Split(id, ".")[0] + ".-1", "."} {
		l := s.listen(t, "Last-Event-ID: "+unknown)
		if m := l.until("missed"); m.data != "{}" {
			t.Errorf("%q: %+v", unknown, m)
		}
		set("d")
		if got, _ := l.event(); got.Name != "d" {
			t.Errorf("%q: %+v", unknown, got)
		}
		l.close()
	}
}

func TestListenerThatIsTooFarBehindIsToldSo(t *testing.T) {
	s := serve(t, server.Config{Store: storetest.Open(t, redisstore.Config{URL: "embedded:"})})
	l := s.listen(t)
	s.do(t, "PUT", "/counter/first", `{"value":1}`)
	_, id := l.event()
	l.close()
	for i := range 1100 {
		s.do(t, "PUT", fmt.Sprint("/counter/k", i), `{"value":1}`)
	}
	l = s.listen(t, "Last-Event-ID: "+id)
	missed := wire.EventMissed{}
	if err := json.Unmarshal([]byte(l.until("missed").data), &missed); err != nil || missed.AtMost != 1100-1024 {
		t.Errorf("%+v %v", missed, err)
	}
	if got, _ := l.event(); got.Name != fmt.Sprint("k", 1100-1024) {
		t.Errorf("%+v", got)
	}
}

// A client that reads nothing holds up neither those that do nor the work.
func TestListenerThatDoesNotReadHoldsNobodyUp(t *testing.T) {
	s := serve(t, server.Config{Store: storetest.Open(t, redisstore.Config{URL: "embedded:"})})
	deaf, err := net.Dial("tcp", s.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer deaf.Close()
	fmt.Fprintf(deaf, "GET /events HTTP/1.1\r\nHost: %s\r\n\r\n", s.addr)
	l := s.listen(t)
	l.until("hello")
	long := strings.Repeat("k", 190)
	for round := range 40 { // more than the buffers of a connection take
		for i := range 1000 {
			s.server.Tell(fmt.Sprint(long, round, ".", i))
		}
		for got := (wire.Event{}); got.Name != fmt.Sprint(long, round, ".", 999); {
			got, _ = l.event()
		}
	}
	s.do(t, "PUT", "/counter/c", `{"value":1}`)
	if strings.Contains(l.all.String(), "event: missed") {
		t.Error("who reads has missed something")
	}
	late := bufio.NewScanner(deaf)
	for late.Scan() && late.Text() != "event: missed" { // or the server has given it up
		if strings.Contains(late.Text(), `"c"`) {
			t.Fatal("the deaf one has heard everything: this test is none")
		}
	}
}

func TestListenersAreLimited(t *testing.T) {
	s := serve(t, server.Config{Store: storetest.Open(t, redisstore.Config{URL: "embedded:"})})
	var all []*listening
	for range 64 {
		l := s.listen(t)
		l.until("hello")
		all = append(all, l)
	}
	if l := s.listen(t); l.status != 429 || l.header.Get("Retry-After") == "" || l.header.Get("Content-Type") != "application/problem+json" {
		t.Errorf("%d %v", l.status, l.header)
	}
	all[0].close()
	eventually(t, "the place is free again", func() bool {
		l := s.listen(t)
		defer l.close()
		return l.status == 200
	})
}

func TestStreamOutlivesTheTimeOfARequestAndEndsWithTheServer(t *testing.T) {
	s := listen(t, server.Config{Store: storetest.Open(t, redisstore.Config{URL: "embedded:"}), RequestTimeout: time.Second})
	s.client.Transport = &http.Transport{DisableKeepAlives: true}
	l := s.listen(t)
	l.until("hello")
	for begun := time.Now(); time.Since(begun) < 6500*time.Millisecond; { // an answer of another kind has RequestTimeout and 5 s
		s.do(t, "PUT", "/counter/c", `{"value":1}`)
		l.event()
	}
	s.stop()
	if m := l.until("end"); m.data != `{"reason":"stopping"}` {
		t.Errorf("%+v", m)
	}
	if _, more := l.next(); more {
		t.Error("there is more behind the end")
	}
	if err := s.end(t); err != nil {
		t.Error(err)
	}
}

// accessOf is a book with a key for each role and names, in a file that can be written anew.
func accessOf(t *testing.T, callers ...access.Record) (book *access.Book, keys []string, file string) {
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
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	book, err := access.Open(t.Context(), access.Config{File: file})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(book.Close)
	return book, keys, file
}

func TestListenersHearOnlyOfTheirNames(t *testing.T) {
	book, keys, _ := accessOf(t, access.Record{Role: access.Admin}, access.Record{Role: access.Read, Names: access.Names{"orders*", "jobs"}})
	s := serve(t, server.Config{Store: storetest.Open(t, redisstore.Config{URL: "embedded:"}), Access: book})
	if l := s.listen(t); l.status != 401 {
		t.Errorf("without a key: %d", l.status)
	}
	all, some := s.listen(t, keys[0]), s.listen(t, keys[1])
	all.until("hello")
	some.until("hello")
	for _, name := range []string{"bills", "orders-1", "jobs", "jobs-2", "orders"} {
		s.do(t, "PUT", "/counter/"+name, `{"value":1}`, keys[0])
	}
	token := must[wire.TokenIssued](t, s, 201, "POST", "/token", "", keys[0]).Token
	must[wire.Claimed](t, s, 200, "POST", "/token/"+token+"/claim", `{"fingerprint":"f","lease_ms":100}`, keys[0])
	eventually(t, "the claim lapses", func() bool {
		return must[wire.TokenStatus](t, s, 200, "GET", "/token/"+token, "", keys[0]).State == "in-doubt"
	})
	s.do(t, "POST", "/token/"+token+"/claim", `{"fingerprint":"f"}`, keys[0])
	s.do(t, "PUT", "/counter/orders-last", `{"value":1}`, keys[0])
	if got := all.events(7); got[0] != "counter.set bills" || got[5] != "token.in-doubt" {
		t.Errorf("%q", got)
	}
	if got, want := some.events(4), []string{"counter.set orders-1", "counter.set jobs", "counter.set orders", "counter.set orders-last"}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

func TestStreamEndsWithTheRightToIt(t *testing.T) {
	book, keys, file := accessOf(t, access.Record{Role: access.Read})
	s := serve(t, server.Config{Store: storetest.Open(t, redisstore.Config{URL: "embedded:"}), Access: book}, func(s *server.Server) { s.SetBeat(time.Second) })
	l := s.listen(t, keys[0])
	l.until(":") // in silence it hears that the server is still there
	if err := errors.Join(os.WriteFile(file, []byte("keys: []\n"), 0o600), book.Reload(t.Context())); err != nil {
		t.Fatal(err)
	}
	if m := l.until("end"); m.data != `{"reason":"unauthorized"}` {
		t.Errorf("%+v", m)
	}
	if _, more := l.next(); more {
		t.Error("there is more behind the end")
	}
}
