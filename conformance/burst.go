package main

import (
	"context"
	"io"
	"slices"
	"strings"
	"sync"
)

// bursts is how often many duplicates are sent at once: to see a race that is lost only sometimes.
const bursts = 3

// burst sends duplicates of quick requests, and of a slow one where there is one: then nearly all
// of them meet the first one while it is running.
func burst(ctx context.Context, s *suite) {
	making := slices.Repeat([]func(string) request{s.request}, bursts)
	if slowHandler.told(s.o) {
		making[bursts-1] = s.slow
	}
	for _, of := range making {
		s.burst(ctx, of(s.newKey(ctx)))
	}
}

// burst sends a request many times at once, then looks at what came of it.
func (s *suite) burst(ctx context.Context, r request) {
	e := s.effects(ctx)
	answers := s.atOnce(ctx, r)
	last := s.patiently(ctx, r)
	if !last.ok() {
		failf(last, "the answer of the one that ran")
	}
	for _, a := range answers {
		if !s.isBusy(a) && !a.same(last) {
			failf(a, "409, or what all others get: %s", last)
		}
	}
	e.moved(ctx, 1, s.again(ctx, last))
}

// atOnce sends a request many times; the bodies leave when all connections stand.
func (s *suite) atOnce(ctx context.Context, r request) []answer {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	answers := make([]answer, s.o.burst)
	start := newStart(s.o.burst)
	var senders sync.WaitGroup
	for i := range answers {
		senders.Go(func() {
			held := start.hold(r.body)
			defer held.ready() // one that fails does not keep others waiting
			if r.body == "" {
				held.await()
			}
			a, err := s.try(ctx, r, held)
			if err != nil {
				cancel(err)
			}
			answers[i] = a
		})
	}
	senders.Wait()
	end(context.Cause(ctx))
	return answers
}

// start lets all bodies go when the last one is ready.
type start struct {
	waiting sync.WaitGroup
	gone    chan struct{}
}

func newStart(n int) *start {
	s := &start{gone: make(chan struct{})}
	s.waiting.Add(n)
	go func() {
		s.waiting.Wait()
		close(s.gone)
	}()
	return s
}

// held is a body that waits for the start when it is first read: net/http has connected by then.
type held struct {
	io.Reader
	start *start
	once  sync.Once
}

func (s *start) hold(body string) *held { return &held{Reader: strings.NewReader(body), start: s} }

func (h *held) ready() { h.once.Do(h.start.waiting.Done) }

func (h *held) await() {
	h.ready()
	<-h.start.gone
}

func (h *held) Read(p []byte) (int, error) {
	h.await()
	return h.Reader.Read(p)
}
