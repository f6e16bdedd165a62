package main

import (
	"context"
	"crypto/rand"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
)

// The checks of a resolver speak with the service behind the gateway, in the gateway's place: they
// begin attempts with names of operations and fences, and ask what became of them.

// decision is what a service says of an operation.
type decision string

const (
	completed decision = "completed"
	notBegun  decision = "not-begun"
)

// operation is one that no attempt was made for yet.
func operation() string { return (rand.Text() + rand.Text())[:32] }

// attempt is a request that the gateway sends for an attempt.
func (s *suite) attempt(operation string, fence int64) request {
	r := s.request("")
	r.url, r.keys = s.o.serviceURL+s.o.path, nil
	return r.ofAttempt(operation, fence)
}

func (r request) ofAttempt(operation string, fence int64) request {
	return r.with(field{"Idempotency-Operation", operation}).with(field{"Idempotency-Fence", strconv.FormatInt(fence, 10)})
}

// ask has the service close an operation, and returns what it says. Anything but the two words
// fails the check.
func (s *suite) ask(ctx context.Context, operation string, fence int64) (answer, decision) {
	a, said, err := s.question(ctx, operation, fence)
	end(err)
	return a, said
}

// questionOf is a question, without the header that tells it from a client's request.
func (s *suite) questionOf(operation string, fence int64) request {
	method, path, _ := strings.Cut(s.o.resolve, " ")
	r := request{url: s.o.serviceURL + strings.Replace(path, "{operation}", operation, 1), method: method, extra: s.o.extra}
	return r.ofAttempt(operation, fence)
}

func (s *suite) question(ctx context.Context, operation string, fence int64) (answer, decision, error) {
	a, err := s.try(ctx, s.questionOf(operation, fence).with(field{"Idempotency-Resolve", "true"}), http.NoBody)
	if err != nil {
		return a, "", err
	}
	said := decision(strings.Join(a.header.Values("Idempotency-Resolution"), ", "))
	if said != completed && said != notBegun {
		return a, said, failureOf(a, "Idempotency-Resolution: completed or not-begun, and not %q", said)
	}
	return a, said, nil
}

// says asks, and expects one of the words.
func (s *suite) says(ctx context.Context, operation string, fence int64, want decision, since string) answer {
	a, said := s.ask(ctx, operation, fence)
	if said != want {
		failf(a, "Idempotency-Resolution: %s, and not %s: %s", want, said, since)
	}
	return a
}

// resolverBefore asks about an attempt that has not begun yet, and then begins it.
func resolverBefore(ctx context.Context, s *suite) {
	name, e := operation(), s.effects(ctx)
	s.says(ctx, name, 7, notBegun, "no attempt was made")
	s.says(ctx, name, 7, notBegun, "it was asked before, and no attempt was made")
	for _, fence := range []int64{7, 6} {
		late := s.send(ctx, s.attempt(name, fence))
		if late.ok() {
			failf(late, "no success: the operation is closed for attempts up to fence 7")
		}
		e.moved(ctx, 0, late)
	}
	// a second doubt closes further, and a late question opens nothing
	for _, fence := range []int64{9, 5} {
		s.says(ctx, name, fence, notBegun, "no attempt had its effect")
	}
	late := s.send(ctx, s.attempt(name, 9))
	if late.ok() {
		failf(late, "no success: the operation was closed for attempts up to fence 9, and then asked about with fence 5")
	}
	newer := s.send(ctx, s.attempt(name, 10))
	if !newer.ok() {
		failf(newer, "a 2xx: the operation is closed for attempts up to fence 9, and this is a newer one")
	}
	e.moved(ctx, 1, newer)
	s.says(ctx, name, 10, completed, "the newer attempt had its effect")
}

// resolverRefuses sends a question without the header that only a gateway sends.
func resolverRefuses(ctx context.Context, s *suite) {
	name := operation()
	a, err := s.try(ctx, s.questionOf(name, 7), http.NoBody)
	end(err)
	if a.ok() || a.header.Get("Idempotency-Resolution") != "" {
		failf(a, "no success, and no Idempotency-Resolution: the request has no Idempotency-Resolve: true, so a client may have sent it")
	}
}

// resolverAfter asks about an attempt that has had its effect.
func resolverAfter(ctx context.Context, s *suite) {
	name, e := operation(), s.effects(ctx)
	first := s.send(ctx, s.attempt(name, 7))
	if !first.ok() {
		failf(first, "a 2xx: it is the first attempt of its operation")
	}
	for range 2 {
		s.says(ctx, name, 7, completed, "the attempt had its effect").mustBe(first)
	}
	again := s.send(ctx, s.attempt(name, 8))
	e.moved(ctx, 1, again)
}

// resolverLate asks while an attempt has sent half of its body, which then goes on.
func resolverLate(ctx context.Context, s *suite) {
	if len(s.o.body) < 2 {
		end(notApplicable("-body is too short to be cut in half"))
	}
	name, e := operation(), s.effects(ctx)
	r := s.attempt(name, 7)
	half, rest := len(r.body)/2, make(chan struct{})
	sent := make(chan struct{})
	body := io.MultiReader(strings.NewReader(r.body[:half]), &paused{sent, rest}, strings.NewReader(r.body[half:]))
	var late answer
	var failed error
	var attempt sync.WaitGroup
	attempt.Go(func() { late, failed = s.try(ctx, r, body) })
	select {
	case <-sent:
	case <-ctx.Done():
	}
	a, said, err := s.question(ctx, name, 7)
	close(rest)
	attempt.Wait()
	end(err)
	if said != notBegun {
		failf(a, "Idempotency-Resolution: not-begun: half of the attempt's body has come")
	}
	if failed == nil && late.ok() {
		failf(late, "no success: the operation was closed for this attempt before its body had come")
	}
	e.moved(ctx, 0, a)
}

// paused gives nothing, and ends when it may.
type paused struct {
	reached chan<- struct{}
	may     <-chan struct{}
}

func (p *paused) Read([]byte) (int, error) {
	close(p.reached)
	<-p.may
	return 0, io.EOF
}

// resolverRace asks beside an attempt, again and again.
func resolverRace(ctx context.Context, s *suite) {
	for range s.o.burst {
		name, e := operation(), s.effects(ctx)
		var ran, a answer
		var said decision
		var failed, wrong error
		var both sync.WaitGroup
		both.Go(func() { ran, failed = s.try(ctx, s.attempt(name, 7), strings.NewReader(s.o.body)) })
		both.Go(func() { a, said, wrong = s.question(ctx, name, 7) })
		both.Wait()
		end(failed)
		end(wrong)
		switch {
		case ran.ok() && said == notBegun:
			failf(a, "Idempotency-Resolution: completed: the attempt beside it was answered %s", ran)
		case !ran.ok() && said == completed:
			failf(a, "Idempotency-Resolution: not-begun: the attempt beside it was answered %s", ran)
		}
		e.moved(ctx, map[decision]int64{completed: 1}[said], a)
	}
}
