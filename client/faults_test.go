package client_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/client"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/proctest"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
)

// verbs asks for each write of the protocol.
func verbs(c *client.Client, token, lease string) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"issue": func(ctx context.Context) error { _, err := c.Issue(ctx, "", 0); return err },
		"claim": func(ctx context.Context) error {
			_, err := c.Claim(ctx, token, client.ClaimOptions{Fingerprint: "f"})
			return err
		},
		"complete": func(ctx context.Context) error { return c.Complete(ctx, token, lease, client.Answer{}) },
		"extend":   func(ctx context.Context) error { _, err := c.Extend(ctx, token, lease, 0); return err },
		"release":  func(ctx context.Context) error { return c.Release(ctx, token, lease) },
	}
}

func TestALostReplyIsAnUnknownOutcomeAndOnlyAClaimIsSentAgain(t *testing.T) {
	s := embedded(t)
	for verb := range verbs(nil, "", "") {
		for name, lose := range map[string]fault{"served": loseReply, "not served": hangUp, "cut off": cutOff} {
			t.Run(verb+" "+name, func(t *testing.T) {
				s.proxy.disturb(nil)
				// this leaves a connection that the next request takes: net/http might send again
				// on another
				token := issue(t, s.Client)
				lease := "none"
				if verb != "issue" && verb != "claim" {
					lease = claim(t, s.Client, token, client.ClaimOptions{Fingerprint: "f"}).Lease
				}
				s.proxy.disturb(lose)
				before := s.proxy.count(verb)
				err := verbs(s.Client, token, lease)[verb](t.Context())
				wantError(t, err, client.ErrUnknownOutcome)
				// only a claim says by its lease token that it is the same
				times := map[bool]int{false: 1, true: 5}[verb == "claim"]
				expect.Equal(t, "how often it was sent", s.proxy.count(verb)-before, times)
				without(t, "the error's text", err.Error(), token)
				if lease != "none" {
					without(t, "the error's text", err.Error(), lease)
				}
			})
		}
	}
}

// cutOff answers with less than it has promised.
func cutOff(w http.ResponseWriter, _ *http.Request, _ http.Handler) bool {
	w.Header().Set("Content-Length", "1000")
	w.WriteHeader(http.StatusOK)
	_, _ = io.WriteString(w, `{"outcome":"granted","lea`)
	_ = http.NewResponseController(w).Flush()
	panic(http.ErrAbortHandler)
}

// What the package's documentation says of each lost reply.
func (s *service) claimLost(t *testing.T) {
	defer s.proxy.disturb(nil)
	for _, lose := range []fault{loseReply, hangUp, cutOff, says(503, "application/problem+json", `{"code":"outcome-unknown"}`)} {
		token := issue(t, s.Client)
		s.proxy.disturb(only("claim", 2, lose))
		grant := claim(t, s.Client, token, client.ClaimOptions{Fingerprint: "f", Lease: time.Hour})
		expect.Equal(t, "the attempt of a claim that lost two replies", grant.Attempt, 1)
		succeeds(t, "Complete of a claim that lost two replies", s.Complete(t.Context(), token, grant.Lease, client.Answer{}))
	}
}

func (s *service) claimNeverAnswered(t *testing.T) {
	defer s.proxy.disturb(nil)
	token, terms := issue(t, s.Client), client.ClaimOptions{Fingerprint: "f", Lease: time.Hour, LeaseToken: client.NewLeaseToken()}
	s.proxy.disturb(only("claim", 0, loseReply))
	_, err := s.Claim(t.Context(), token, terms)
	wantError(t, err, client.ErrUnknownOutcome)
	without(t, "the error's text", err.Error(), terms.LeaseToken)
	s.proxy.disturb(nil)
	_, err = s.Claim(t.Context(), token, client.ClaimOptions{Fingerprint: "f"})
	wantError(t, err, client.ErrInProgress)
	grant := claim(t, s.Client, token, terms)
	expect.Equal(t, "the lease of the caller that asks again", grant.Lease, terms.LeaseToken)
	expect.Equal(t, "the attempt of the caller that asks again", grant.Attempt, 1)
	succeeds(t, "Release by the caller", s.Release(t.Context(), token, terms.LeaseToken))
	expect.Equal(t, "the token's state", state(t, s.Client, token), api.StateIssued)
}

// A repeat that the service refuses says nothing of the claim that went before.
func TestARefusalAfterALostClaimLeavesItsOutcomeUnknown(t *testing.T) {
	s := embedded(t)
	var claims atomic.Int64
	s.proxy.disturb(func(w http.ResponseWriter, r *http.Request, service http.Handler) bool {
		if claims.Add(1) == 1 {
			return loseReply(w, r, service)
		}
		return says(503, "application/problem+json", `{"code":"store-unavailable","retryable":true}`)(w, r, service)
	})
	_, err := s.Claim(t.Context(), "a-token", client.ClaimOptions{Fingerprint: "f"})
	wantError(t, err, client.ErrUnknownOutcome)
	s.proxy.disturb(only("claim", 1, loseReply))
	_, err = s.Claim(t.Context(), "a-token", client.ClaimOptions{Fingerprint: "f"})
	wantError(t, err, client.ErrUnknownToken)
}

func TestALeaseTokenOfAnotherFormIsNotSent(t *testing.T) {
	s := embedded(t)
	for _, owner := range []string{"orders-service-eu", strings.Repeat("o", 23), "a token with 22 spaces", "twenty-two-letters!!\r\n"} {
		_, err := s.Claim(t.Context(), "a-token", client.ClaimOptions{Fingerprint: "f", LeaseToken: owner})
		wantError(t, err, client.ErrInvalid, "lease token", owner)
		without(t, "the error's text", err.Error(), owner)
	}
	expect.Equal(t, "claims sent", s.proxy.count("claim"), 0)
}

func (s *service) askedAgain(t *testing.T) {
	defer s.proxy.disturb(nil)
	for _, verb := range []string{"complete", "extend", "release"} {
		token := issue(t, s.Client)
		grant := claim(t, s.Client, token, client.ClaimOptions{Fingerprint: "f"})
		s.proxy.disturb(only(verb, 1, loseReply))
		write := verbs(s.Client, token, grant.Lease)[verb]
		wantError(t, write(t.Context()), client.ErrUnknownOutcome, "verb", verb)
		succeeds(t, verb+" again", write(t.Context()))
	}
}

// A connection that the service closes while it is idle, unseen: the write meets a dead one, and
// must not be sent on another, since it may have arrived.
func TestAWriteThatMeetsADeadConnectionIsNotSentAgain(t *testing.T) {
	var requests atomic.Int64
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, "listening", err)
	served := make(chan struct{})
	go func() {
		defer close(served)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			answerOne(conn, &requests)
		}
	}()
	t.Cleanup(func() {
		listener.Close()
		<-served
	})
	c := connect(t, "http://"+listener.Addr().String())
	for want := int64(2); want <= 20; want += 2 {
		issue(t, c)
		_, err := c.Issue(t.Context(), "", 0)
		wantError(t, err, client.ErrUnknownOutcome)
		expect.MustEqual(t, "requests that came", requests.Load(), want)
	}
}

// answerOne answers the first request of a connection, and reads the second before it hangs up
// without a word, as a service that died in the middle.
func answerOne(conn net.Conn, requests *atomic.Int64) {
	defer conn.Close()
	lines := bufio.NewReader(conn)
	for n := range 2 {
		request, err := http.ReadRequest(lines)
		if err != nil {
			return
		}
		_, _ = io.Copy(io.Discard, request.Body)
		requests.Add(1)
		if n == 0 {
			const issued = `{"token":"abc","expires_at":"2026-11-20T15:35:46.279Z","scope":""}`
			_, _ = io.WriteString(conn, "HTTP/1.1 201 Created\r\nContent-Length: 66\r\n\r\n"+issued)
		}
	}
}

// A service that refuses a large body without having read it closes the connection over what is
// under way, and its answer is lost with that. So the body waits.
func TestALargeBodyWaitsUntilItIsWanted(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, "listening", err)
	served := make(chan struct{})
	go func() {
		defer close(served)
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		request, err := http.ReadRequest(bufio.NewReaderSize(conn, 16))
		succeeds(t, "reading the request", err)
		if err == nil {
			expect.Equal(t, "the request's header Expect", request.Header.Get("Expect"), "100-continue")
		}
		_, _ = io.WriteString(conn, "HTTP/1.1 413 Request Entity Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
	}()
	t.Cleanup(func() {
		listener.Close()
		<-served
	})
	patient := transport(t)
	patient.ExpectContinueTimeout = patience
	c := connect(t, "http://"+listener.Addr().String(), func(config *client.Config) { config.HTTPClient = &http.Client{Transport: patient} })
	wantError(t, c.Complete(t.Context(), "a-token", "a-lease", client.Answer{Body: make([]byte, 8<<20)}), client.ErrTooLarge)
}

func TestAServiceThatIsAwayIsARefusal(t *testing.T) {
	c := connect(t, "http://"+proctest.ClosedPort(t))
	for verb, write := range verbs(c, "secret-token", "secret-lease") {
		err := write(t.Context())
		wantError(t, err, client.ErrUnavailable, "verb", verb)
		expect.Error(t, verb+" of a service that is away", err, syscall.ECONNREFUSED)
		without(t, verb+" of a service that is away", err.Error(), "secret", "/token")
	}
	_, err := c.Status(t.Context(), "secret-token")
	wantError(t, err, client.ErrUnavailable)
}

// net/http would read the answer for ever, whatever the context.
func TestAnswerOfAnotherProtocolIsAnUnknownOutcome(t *testing.T) {
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Errorf("Hijack: %v", err)
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
		_, _ = io.Copy(io.Discard, conn)
	}))
	defer service.Close()
	c, err := client.New(client.Config{URL: service.URL})
	expect.NoError(t, "New", err)
	_, err = c.Incr(t.Context(), "k")
	expect.Error(t, "Incr", err, client.ErrUnknownOutcome)
}

func TestAnEndedContextSendsNothing(t *testing.T) {
	s := embedded(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for verb, write := range verbs(s.Client, "a-token", "a-lease") {
		err := write(ctx)
		wantError(t, err, client.ErrRefused, "verb", verb)
		expect.Error(t, verb+" with a context that has ended", err, context.Canceled)
		expect.Equal(t, "how often "+verb+" was sent", s.proxy.count(verb), 0)
	}
}

// mute reports nothing of what it does.
type mute struct{}

func (mute) RoundTrip(*http.Request) (*http.Response, error) {
	return nil, errors.New("something failed")
}

func TestATransportThatReportsNothingMayHaveSentIt(t *testing.T) {
	c := connect(t, "http://h", func(config *client.Config) { config.HTTPClient = &http.Client{Transport: mute{}} })
	_, err := c.Claim(t.Context(), "a-token", client.ClaimOptions{})
	wantError(t, err, client.ErrUnknownOutcome)
}

func TestHTTP2(t *testing.T) {
	s := embedded(t)
	web := httptest.NewUnstartedServer(s.proxy)
	web.EnableHTTP2 = true
	web.StartTLS()
	t.Cleanup(web.Close)
	c := connect(t, web.URL, func(config *client.Config) { config.HTTPClient = web.Client() })
	token := issue(t, c)
	s.proxy.disturb(only("claim", 1, func(w http.ResponseWriter, r *http.Request, service http.Handler) bool {
		expect.Equal(t, "the protocol of the request", r.Proto, "HTTP/2.0")
		return loseReply(w, r, service)
	}))
	expect.Equal(t, "the attempt of a claim that lost a reply", claim(t, c, token, client.ClaimOptions{Fingerprint: "f"}).Attempt, 1)
	expect.Equal(t, "claims that came", s.proxy.count("claim"), 2)
	untrusted := connect(t, web.URL)
	_, err := untrusted.Issue(t.Context(), "", 0)
	wantError(t, err, client.ErrUnavailable)
}

func TestAStoreThatIsAwayIsARefusalOfTheService(t *testing.T) {
	redis := redistest.Start(t)
	s := serve(t, open(t, redis.URL()))
	token := issue(t, s.Client)
	redis.Kill()
	_, err := s.Claim(t.Context(), token, client.ClaimOptions{Fingerprint: "f"})
	failure := wantError(t, err, client.ErrUnavailable)
	if failure.Wait == 0 || !failure.Retryable || failure.Status != 503 {
		t.Errorf("Claim while Redis is away: got %+v, want status 503, retryable after a while", failure)
	}
}

// A Redis that hangs may do later what it was asked for: the service says so, and so does the
// client.
func TestAStoreThatHangsIsAnUnknownOutcome(t *testing.T) {
	redis := redistest.Start(t)
	s := serve(t, storetest.Open(t, redisstore.Config{URL: redis.URL(), Timeout: time.Second}))
	token := issue(t, s.Client)
	redis.Pause()
	_, err := s.Claim(t.Context(), token, client.ClaimOptions{Fingerprint: "f"})
	failure := wantError(t, err, client.ErrUnknownOutcome)
	expect.Equal(t, "the code while Redis hangs", failure.Code, "outcome-unknown")
	expect.Equal(t, "the status while Redis hangs", failure.Status, 503)
	_, err = s.Status(t.Context(), token)
	wantError(t, err, client.ErrUnavailable)
}
