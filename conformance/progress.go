package main

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"strings"
	"sync"
	"time"
)

// running is a first request that the server has been seen to be busy with.
type running struct {
	request request
	before  effects
	busy    answer             // the 409 that a duplicate got
	hangUp  context.CancelFunc // closes the connection; it may be called again
	done    chan struct{}      // closed when the answer is there, or cannot come any more
	begun   time.Time
	took    time.Duration
	answer  answer // these two once done is closed
	err     error
}

// begin sends a request with a new key that keeps the handler busy, and waits until a duplicate
// hears that. On the way the duplicate may overtake it, so that the first one hears it instead, or
// fall behind, so that the answer is there already: then another key is tried.
func (s *suite) begin(ctx context.Context) *running {
	const tries = 5
	missed := error(notApplicable("each time the duplicate came before the first request"))
	for range tries {
		key, e := s.newKey(ctx), s.effects(ctx)
		first := s.start(ctx, s.slow(key))
		first.before = e
		a, err := s.try(ctx, first.request, strings.NewReader(first.request.body))
		if err == nil && s.isBusy(a) {
			first.busy = a
			return first
		}
		<-first.done
		first.hangUp()
		end(errors.Join(err, first.err))
		switch {
		case first.answer.status == http.StatusConflict: // overtaken
		case a.same(first.answer):
			missed = s.tooLate(first, a)
		default:
			end(notBusy(first, a))
		}
	}
	end(missed)
	return nil
}

// notBusy says that a duplicate did not hear that the first request is running.
func notBusy(first *running, a answer) error {
	return failureOf(a, "409: the first request with this key was still running (its answer: %s)", first.answer)
}

// tooLate is for a duplicate that got the first one's answer: it was made to wait for it, or the
// request is not slow enough to be met.
func (s *suite) tooLate(first *running, a answer) error {
	if visible := max(50*time.Millisecond, s.o.slow/2); first.took < visible {
		return notApplicable("the slow request took only " + first.took.String() + ": too short to be met")
	}
	return notBusy(first, a)
}

// start sends a request in the background and waits until it has gone out.
func (s *suite) start(ctx context.Context, r request) *running {
	written := make(chan struct{})
	var once sync.Once
	gone := func() { once.Do(func() { close(written) }) }
	ctx, hangUp := context.WithCancel(httptrace.WithClientTrace(ctx,
		&httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) { gone() }}))
	first := &running{request: r, hangUp: hangUp, done: make(chan struct{}), begun: time.Now()}
	go func() {
		defer close(first.done)
		first.answer, first.err = s.try(ctx, r, strings.NewReader(r.body))
		first.took = time.Since(first.begun)
		gone()
	}()
	<-written
	return first
}

// end waits for the answer of the first request, which has to succeed.
func (first *running) end() answer {
	<-first.done
	first.hangUp()
	end(first.err)
	if !first.answer.ok() {
		failf(first.answer, "a 2xx: it was the first request with its key")
	}
	return first.answer
}

// conflict is a request that met a duplicate of it while it was running. Several checks look at it.
type conflict struct {
	refusal answer // the 409
	err     error  // there was none
	after   error  // what went wrong then
}

// conflicts makes a conflict, once.
func (s *suite) conflicts(ctx context.Context) answer {
	if s.seen == nil {
		s.seen = &conflict{}
		var running *running
		if s.seen.err = attempt(func() { running = s.begin(ctx) }); s.seen.err == nil {
			s.seen.refusal = running.busy
			s.seen.after = attempt(func() { running.before.moved(ctx, 1, s.again(ctx, running.end())) })
		}
	}
	end(s.seen.err)
	return s.seen.refusal
}

func inProgress(ctx context.Context, s *suite) {
	s.conflicts(ctx)
	end(s.seen.after)
}

func progressLink(ctx context.Context, s *suite) { s.links(s.conflicts(ctx)) }

func progressProblem(ctx context.Context, s *suite) { isProblem(s.conflicts(ctx)) }

func retryAfter(ctx context.Context, s *suite) {
	a := s.conflicts(ctx)
	value := a.header.Get("Retry-After")
	_, notDate := http.ParseTime(value)
	if seconds, err := strconv.Atoi(value); notDate != nil && (err != nil || seconds < 0) {
		failf(a, "Retry-After, as a number of seconds or a date")
	}
}

// hangUp leaves in the middle of a request, and asks again until the first attempt is over.
func hangUp(ctx context.Context, s *suite) {
	if !s.counts() && s.o.marker == (field{}) {
		end(notApplicable("without -count-url and -marker nothing tells a replay from a second run"))
	}
	running := s.begin(ctx)
	running.hangUp()
	<-running.done
	if running.err == nil {
		end(notApplicable("the slow request was answered before the client could hang up"))
	}
	a := s.patiently(ctx, running.request)
	if s.isUnknown(a) {
		if attempt(func() { running.before.moved(ctx, 0, a) }) != nil {
			running.before.moved(ctx, 1, a)
		}
		return
	}
	if !a.ok() || !s.counts() && !s.marked(a) {
		failf(a, "the answer that the first attempt recorded, as a replay")
	}
	running.before.moved(ctx, 1, a)
	s.twiceMore(ctx, running.request)
}

// slowOwner sends duplicates all the time while a handler takes longer than its lease.
func slowOwner(ctx context.Context, s *suite) {
	running := s.begin(ctx)
	others := s.pester(ctx, running)
	first := running.end()
	if running.took <= s.o.lease {
		end(notApplicable("the slow request took " + running.took.String() + ", which is no longer than -lease " + s.o.lease.String()))
	}
	for _, a := range others {
		if !a.same(first) {
			failf(a, "409 while the first attempt runs, then its answer: %s", first)
		}
	}
	running.before.moved(ctx, 1, s.again(ctx, first))
}

// pester sends duplicates until the first request has been answered, and returns the answers that
// were not "in progress". It always waits for that request.
func (s *suite) pester(ctx context.Context, first *running) (others []answer) {
	defer func() { <-first.done }()
	for {
		select {
		case <-first.done:
			return others
		case <-time.After(min(s.o.lease/5, 4*pause)):
		}
		if a := s.send(ctx, first.request); !s.isBusy(a) {
			others = append(others, a)
		}
	}
}

// twoPrincipals sends the same request with the same key for both.
func twoPrincipals(ctx context.Context, s *suite) {
	if s.o.issued() {
		end(notApplicable("a token is issued to one principal: token-of-another looks at that"))
	}
	key := s.newKey(ctx)
	s.differ(ctx, s.request(key).with(s.o.principalA), s.request(key).with(s.o.principalB))
}
