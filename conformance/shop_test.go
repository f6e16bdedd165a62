package main

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// shop is an idempotent HTTP service in memory that is right, but for the one fault that it is
// given. X-Slow makes a payment take long, X-Fail makes it fail after its effect; Authorization
// says who pays.
type shop struct {
	fault fault
	slow  time.Duration // how long a slow payment takes
	// matters only to a fault: the shop knows which of its payments are running
	lease   time.Duration
	mu      sync.Mutex
	records map[string]*record
	issued  map[string]string // token: who may use it
	total   int
	rows    map[string]*row // of operations, for attempts that a gateway sends
	// closed when a fault of the lease has been met: a slow payment takes that long
	lapsed chan struct{}
	once   sync.Once
}

// record is what the shop knows of an operation.
type record struct {
	fingerprint string
	answer      *reply        // nil while it runs
	over        chan struct{} // closed when the answer is there
	until       time.Time     // end of the lease
}

// row is an operation as its attempts and its resolver keep it.
type row struct {
	fence  int64
	answer *reply // of the attempt that had its effect; nil = it is closed up to the fence
}

type reply struct {
	status int
	header http.Header
	body   []byte
}

// openShop starts a shop that ends with the test, and returns the arguments that tell the suite
// about it.
func openShop(t testing.TB, wrong fault) (args []string) {
	t.Helper()
	web := httptest.NewServer(newShop(wrong))
	t.Cleanup(web.Close)
	wait := "1m"
	if wrong == hangUpWedges {
		wait = "1s" // what it waits for never comes
	}
	return []string{
		"-url", web.URL, "-count-url", "/payments", "-token-url", "/token", "-policy", "/policy",
		"-slow-header", "X-Slow: yes", "-slow", "200ms", "-lease", "60ms", "-error-header", "X-Fail: yes", "-early-header", "X-Early: yes", "-redirect-path", "/payments/",
		"-principal-a", "Authorization: Bearer a", "-principal-b", "Authorization: Bearer b",
		"-service-url", web.URL + "/behind", "-resolve", "PUT /operations/{operation}",
		"-n", "20", "-timeout", "2m", "-wait", wait,
	}
}

func newShop(wrong fault) *shop {
	return &shop{
		fault: wrong, slow: 200 * time.Millisecond, lease: 60 * time.Millisecond,
		records: map[string]*record{}, issued: map[string]string{}, lapsed: make(chan struct{}), rows: map[string]*row{},
	}
}

func (s *shop) is(faults ...fault) bool { return slices.Contains(faults, s.fault) }

func (s *shop) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.Method + " " + r.URL.Path {
	case "GET /payments":
		s.mu.Lock()
		defer s.mu.Unlock()
		fmt.Fprintf(w, `{"total":%d}`, s.total)
	case "POST /token":
		fmt.Fprintf(w, `{"token":%q}`, s.issue(r.Header.Get("Authorization")))
	case "POST /payments":
		if r.Header.Get("X-Early") == "" {
			s.guard(w, r)
			return
		}
		_, _ = io.Copy(io.Discard, r.Body) // the suite's own client has no race then
		s.refuse(w, map[bool]int{false: http.StatusUnauthorized, true: http.StatusServiceUnavailable}[s.is(earlyLost)])
	case "POST /payments/":
		s.redirect(w, r)
	case "POST /behind/payments":
		s.attempt(w, r)
	case "PUT /behind/operations/" + r.Header.Get("Idempotency-Operation"):
		s.resolve(w, r)
	default:
		http.NotFound(w, r)
	}
}

// attempt is a payment that a gateway sends: it enters its row with its effect.
func (s *shop) attempt(w http.ResponseWriter, r *http.Request) {
	operation := r.Header.Get("Idempotency-Operation")
	fence, err := strconv.ParseInt(r.Header.Get("Idempotency-Fence"), 10, 64)
	if _, cut := io.ReadAll(r.Body); err != nil || cut != nil {
		s.refuse(w, http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	before := s.rows[operation]
	closed := before != nil && (before.answer != nil || fence <= before.fence || s.is(resolverForbid))
	answer := &reply{http.StatusCreated, http.Header{"Content-Type": {"application/json"}}, []byte(`{"id":"` + rand.Text() + `"}`)}
	if !closed {
		s.total++
		s.rows[operation] = &row{fence, answer}
	}
	s.mu.Unlock()
	if closed {
		s.refuse(w, http.StatusConflict)
		return
	}
	answer.send(w)
}

// resolve closes an operation, or says what its attempt has answered.
func (s *shop) resolve(w http.ResponseWriter, r *http.Request) {
	operation := r.Header.Get("Idempotency-Operation")
	fence, err := strconv.ParseInt(r.Header.Get("Idempotency-Fence"), 10, 64)
	if err != nil || r.Header.Get("Idempotency-Resolve") != "true" && !s.is(resolverTells) {
		s.refuse(w, http.StatusNotFound)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	found := s.rows[operation]
	if s.is(resolverRaces) {
		s.mu.Unlock()
		time.Sleep(5 * time.Millisecond) // between the look and the closing
		s.mu.Lock()
	}
	if found != nil && found.answer != nil {
		w.Header().Set("Idempotency-Resolution", "completed")
		if !s.is(resolverMute) {
			found.answer.send(w)
		}
		return
	}
	switch {
	case s.is(resolverLooks), found != nil && s.is(resolverKeeps):
	case found != nil && !s.is(resolverOpens, resolverRaces):
		s.rows[operation] = &row{fence: max(found.fence, fence)}
	default:
		s.rows[operation] = &row{fence: fence}
	}
	w.Header().Set("Idempotency-Resolution", "not-begun")
}

// redirect answers with where payments are made.
func (s *shop) redirect(w http.ResponseWriter, r *http.Request) {
	if s.is(redirectKept) {
		name, _, _ := s.operation(r)
		s.claim(name, "the redirect")
	}
	to := "/payments"
	if s.is(redirectLeads) {
		to = "http://backend.example/payments"
	}
	http.Redirect(w, r, to, http.StatusTemporaryRedirect)
}

func (s *shop) issue(to string) string {
	token := rand.Text()
	if s.is(tokenTwice) {
		token = token[:1]
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.issued[token] = to
	return token
}

// guard runs a payment, or answers what becomes of it instead.
func (s *shop) guard(w http.ResponseWriter, r *http.Request) {
	name, unguarded, status := s.operation(r)
	if status != 0 {
		if s.is(runsRefused) {
			s.pay(r)
		}
		s.refuse(w, status)
		return
	}
	var early *record
	if s.is(halfBurns) {
		if taken, mine := s.claim(name, "half"); mine {
			early = taken
		}
	}
	body, err := io.ReadAll(r.Body)
	if err != nil && !s.is(halfRuns) {
		s.refuse(w, http.StatusBadRequest)
		return
	}
	if unguarded {
		s.pay(r).send(w)
		return
	}
	fingerprint := r.URL.RequestURI() + " " + string(body)
	switch {
	case s.is(bodyIgnored) || s.is(tokenBodyIgnored) && r.Header.Get("Idempotency-Token") != "":
		fingerprint = r.URL.RequestURI()
	case s.is(queryIgnored):
		fingerprint = string(body)
	case s.is(keyIgnored):
		name = fingerprint
	}
	if early != nil {
		s.forget(name)
	}
	found, mine := s.claim(name, fingerprint)
	if mine {
		s.perform(w, r, name, found)
		return
	}
	s.repeat(w, r, name, fingerprint, found)
}

// claim looks at an operation and takes it in one step, if it is not right.
func (s *shop) claim(name, fingerprint string) (found *record, mine bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	found = s.records[name]
	lapsed := s.is(leaseOnly) && found != nil && found.answer == nil && time.Now().After(found.until)
	if lapsed {
		s.meet()
	}
	if found != nil && !lapsed {
		return found, false
	}
	if s.is(looksThenLocks) {
		s.mu.Unlock()
		time.Sleep(5 * time.Millisecond) // between the look and the lock
		s.mu.Lock()
	}
	found = &record{fingerprint: fingerprint, over: make(chan struct{}), until: time.Now().Add(s.lease)}
	s.records[name] = found
	return found, true
}

// perform runs the payment, records its answer and sends it.
func (s *shop) perform(w http.ResponseWriter, r *http.Request, name string, mine *record) {
	answered := make(chan struct{})
	defer close(answered)
	if s.is(hangUpFrees) {
		go func() {
			select {
			case <-r.Context().Done():
				s.forget(name)
			case <-answered:
			}
		}()
	}
	answer := s.pay(r)
	if s.is(hangUpWedges) && r.Context().Err() != nil {
		return
	}
	if s.is(sendsFirst) {
		answer.send(w)
		_ = http.NewResponseController(w).Flush()
		time.Sleep(20 * time.Millisecond) // before it is stored
	}
	s.mu.Lock()
	mine.answer = answer
	close(mine.over)
	s.mu.Unlock()
	if s.is(errorFrees) && answer.status >= 400 || s.is(rerunsAlways) || s.is(tokenRerun) && r.Header.Get("Idempotency-Token") != "" {
		s.forget(name)
	}
	if !s.is(sendsFirst) {
		answer.send(w)
	}
}

func (s *shop) forget(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.records, name)
}

// pay is the handler: it has its effect and answers with an id of its own.
func (s *shop) pay(r *http.Request) *reply {
	s.mu.Lock()
	s.total++
	s.mu.Unlock()
	if r.Header.Get("X-Slow") != "" {
		s.takeLong()
	}
	id := rand.Text()
	answer := &reply{http.StatusCreated, http.Header{
		"Content-Type": {"application/json"}, "Set-Cookie": {"session=" + id}, "Connection": {"X-Hop"}, "X-Hop": {id},
	}, []byte(`{"id":"` + id + `"}` + "\n")}
	if r.Header.Get("X-Fail") != "" {
		answer.status = http.StatusInternalServerError
	}
	if s.is(marksFirst) {
		answer.header.Set("Idempotent-Replayed", "true")
	}
	return answer
}

// takeLong is a slow payment. A fault of the lease shows when a duplicate comes after its end and
// before the payment's.
func (s *shop) takeLong() {
	time.Sleep(s.slow)
	if s.is(leaseOnly, leaseDoubts) {
		select {
		case <-s.lapsed:
		case <-time.After(5 * time.Second): // the other end does not look
		}
	}
}

func (s *shop) meet() { s.once.Do(func() { close(s.lapsed) }) }

func (a *reply) send(w http.ResponseWriter) {
	maps.Copy(w.Header(), a.header)
	w.WriteHeader(a.status)
	_, _ = w.Write(a.body)
}

// repeat answers a request whose operation is there already.
func (s *shop) repeat(w http.ResponseWriter, r *http.Request, name, fingerprint string, found *record) {
	s.mu.Lock()
	answer, same, lapsed := found.answer, found.fingerprint == fingerprint, time.Now().After(found.until)
	s.mu.Unlock()
	switch {
	case !same:
		if s.is(mismatchForgets) {
			s.forget(name)
		}
		if s.is(mismatchRuns) {
			s.pay(r)
		}
		s.refuse(w, http.StatusUnprocessableEntity)
	case answer == nil && s.is(leaseDoubts) && lapsed:
		s.meet()
		w.WriteHeader(http.StatusConflict)
		_, _ = io.WriteString(w, `{"type":"/problems/outcome-unknown"}`)
	case answer == nil && s.is(busyWaits):
		<-found.over
		s.replay(w, found.answer)
	case answer == nil && s.is(busySucceeds):
		w.WriteHeader(http.StatusAccepted)
	case answer == nil:
		s.refuse(w, http.StatusConflict)
	case s.is(tokenDeleted) && r.Header.Get("Idempotency-Token") != "":
		s.refuse(w, http.StatusGone)
	default:
		s.replay(w, answer)
	}
}

// replay sends a recorded answer again.
func (s *shop) replay(w http.ResponseWriter, recorded *reply) {
	answer := reply{recorded.status, recorded.header.Clone(), bytes.Clone(recorded.body)}
	if !s.is(marksNothing) {
		answer.header.Set("Idempotent-Replayed", "true")
	}
	if !s.is(cookiesReplayed) {
		answer.header.Del("Set-Cookie")
	}
	if !s.is(hopsReplayed) {
		answer.header.Del("X-Hop")
	}
	answer.header.Del("Connection")
	switch {
	case s.is(otherStatus):
		answer.status = http.StatusOK
	case s.is(otherBytes):
		answer.body = bytes.TrimSpace(answer.body)
	case s.is(otherType):
		answer.header.Set("Content-Type", "text/plain")
	}
	answer.send(w)
}

// refuse answers with a problem.
func (s *shop) refuse(w http.ResponseWriter, status int) {
	if s.is(busyTooEarly) && status == http.StatusConflict {
		status = http.StatusTooEarly
	}
	link := map[int]fault{400: noLink400, 409: noLink409, 422: noLink422}[status]
	if !s.is(link) && status < 500 {
		target := "/policy"
		if s.is(linksElsewhere) {
			target = "/elsewhere"
		}
		w.Header().Set("Link", "<"+target+`>; rel="describedby"`)
	}
	if status == http.StatusConflict && !s.is(noRetryAfter) {
		w.Header().Set("Retry-After", "1")
	}
	body := fmt.Appendf(nil, `{"type":"about:blank","title":%q,"status":%d}`, http.StatusText(status), status)
	w.Header().Set("Content-Type", "application/problem+json")
	if form := map[int]fault{400: noProblem400, 409: noProblem409, 422: noProblem422}[status]; form != "" && s.is(form) {
		body = []byte(strings.ToLower(http.StatusText(status)))
		w.Header().Set("Content-Type", "text/plain")
	}
	w.WriteHeader(status)
	_, _ = w.Write(body)
}
