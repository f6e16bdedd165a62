package main

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptrace"
	"strconv"
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
func (s *suite) begin(ctx context.Context) (*running, error) {
	const tries = 5
	missed := error(notApplicable("each time the duplicate came before the first request"))
	for range tries {
		key, err := s.newKey(ctx)
		if err != nil {
			return nil, err
		}
		e, err := s.effects(ctx)
		if err != nil {
			return nil, err
		}
		first := s.start(ctx, s.slow(key))
		first.before = e
		a, err := s.send(ctx, first.request)
		if err == nil && a.status == http.StatusConflict && !s.isUnknown(a) {
			first.busy = a
			return first, nil
		}
		<-first.done
		first.hangUp()
		if err := errors.Join(err, first.err); err != nil {
			return nil, err
		}
		switch {
		case first.answer.status == http.StatusConflict: // overtaken
		case same(a, first.answer) == nil:
			missed = s.tooLate(first, a)
		default:
			return nil, notBusy(first, a)
		}
	}
	return nil, missed
}

// notBusy says that a duplicate did not hear that the first request is running.
func notBusy(first *running, a answer) error {
	return fail(a, "409: the first request with this key was still running (its answer: %s)", first.answer)
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
	ctx, hangUp := context.WithCancel(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) { gone() }}))
	first := &running{request: r, hangUp: hangUp, done: make(chan struct{}), begun: time.Now()}
	go func() {
		defer close(first.done)
		first.answer, first.err = s.send(ctx, r)
		first.took = time.Since(first.begun)
		gone()
	}()
	<-written
	return first
}

// end waits for the answer of the first request, which has to succeed.
func (first *running) end() (answer, error) {
	<-first.done
	first.hangUp()
	if first.err == nil && !first.answer.ok() {
		return first.answer, fail(first.answer, "a 2xx: it was the first request with its key")
	}
	return first.answer, first.err
}

// conflict is a request that met a duplicate of it while it was running. Several checks look at it.
type conflict struct {
	refusal answer // the 409
	err     error  // there was none
	after   error  // what went wrong then
}

// conflicts makes a conflict, once.
func (s *suite) conflicts(ctx context.Context) (answer, error) {
	if s.seen == nil {
		s.seen = &conflict{}
		var running *running
		if running, s.seen.err = s.begin(ctx); s.seen.err == nil {
			s.seen.refusal, s.seen.after = running.busy, s.settle(ctx, running)
		}
	}
	return s.seen.refusal, s.seen.err
}

// settle waits for a running request's answer, which its repeat gets as well.
func (s *suite) settle(ctx context.Context, running *running) error {
	first, err := running.end()
	if err != nil {
		return err
	}
	a, err := s.again(ctx, first)
	if err != nil {
		return err
	}
	return running.before.moved(ctx, 1, a)
}

func inProgress(ctx context.Context, s *suite) error {
	if _, err := s.conflicts(ctx); err != nil {
		return err
	}
	return s.seen.after
}

func progressLink(ctx context.Context, s *suite) error { return each(ctx, s.links, s.conflicts) }

func progressProblem(ctx context.Context, s *suite) error { return each(ctx, isProblem, s.conflicts) }

func retryAfter(ctx context.Context, s *suite) error {
	return each(ctx, func(a answer) error {
		value := a.header.Get("Retry-After")
		_, notDate := http.ParseTime(value)
		if seconds, err := strconv.Atoi(value); notDate != nil && (err != nil || seconds < 0) {
			return fail(a, "Retry-After, as a number of seconds or a date")
		}
		return nil
	}, s.conflicts)
}

// hangUp leaves in the middle of a request, and asks again until the first attempt is over.
func hangUp(ctx context.Context, s *suite) error {
	if !s.counts() && s.o.marker == (field{}) {
		return notApplicable("without -count-url and -marker nothing tells a replay from a second run")
	}
	running, err := s.begin(ctx)
	if err != nil {
		return err
	}
	running.hangUp()
	<-running.done
	if running.err == nil {
		return notApplicable("the slow request was answered before the client could hang up")
	}
	a, err := s.patiently(ctx, running.request)
	if err != nil {
		return err
	}
	if s.isUnknown(a) {
		return running.before.atMostOne(ctx, a)
	}
	if !a.ok() || !s.counts() && !s.marked(a) {
		return fail(a, "the answer that the first attempt recorded, as a replay")
	}
	if err := running.before.moved(ctx, 1, a); err != nil {
		return err
	}
	return s.twiceMore(ctx, running.request)
}

// atMostOne checks that there was no effect since, or one.
func (e effects) atMostOne(ctx context.Context, a answer) error {
	if e.moved(ctx, 0, a) == nil {
		return nil
	}
	return e.moved(ctx, 1, a)
}

// slowOwner sends duplicates all the time while a handler takes longer than its lease.
func slowOwner(ctx context.Context, s *suite) error {
	running, err := s.begin(ctx)
	if err != nil {
		return err
	}
	others, err := s.pester(ctx, running)
	first, ended := running.end()
	if err := errors.Join(err, ended); err != nil {
		return err
	}
	if running.took <= s.o.lease {
		return notApplicable("the slow request took " + running.took.String() + ", which is no longer than -lease " + s.o.lease.String())
	}
	for _, a := range others {
		if err := same(a, first); err != nil {
			return fail(a, "409 while the first attempt runs, then its answer: %s", first)
		}
	}
	a, err := s.again(ctx, first)
	if err != nil {
		return err
	}
	return running.before.moved(ctx, 1, a)
}

// pester sends duplicates until the first request has been answered, and returns the answers that
// were not "in progress".
func (s *suite) pester(ctx context.Context, first *running) (others []answer, err error) {
	for {
		select {
		case <-first.done:
			return others, nil
		case <-time.After(min(s.o.lease/5, 4*pause)):
		}
		a, err := s.send(ctx, first.request)
		if err != nil {
			return others, err
		}
		if a.status != http.StatusConflict || s.isUnknown(a) {
			others = append(others, a)
		}
	}
}

// twoPrincipals sends the same request with the same key for both.
func twoPrincipals(ctx context.Context, s *suite) error {
	if s.o.issued() {
		return notApplicable("a token is issued to one principal: token-of-another looks at that")
	}
	key, err := s.newKey(ctx)
	if err != nil {
		return err
	}
	return s.differ(ctx, s.request(key).with(s.o.principalA), s.request(key).with(s.o.principalB))
}
