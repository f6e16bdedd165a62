package metrics

import (
	"github.com/coatcheck/coatcheck/counter"
	"github.com/coatcheck/coatcheck/idempotency"
	"github.com/coatcheck/coatcheck/internal/doubt"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/segment"
	"github.com/coatcheck/coatcheck/segment/redissource"
	"github.com/coatcheck/coatcheck/workerlease"
)

// Program is what a program has opened on its store. Fields but Store may be nil: the program has
// no such part.
type Program struct {
	Store  *redisstore.Store
	Tokens *idempotency.Tokens
	// Routes returns the names of the guarded routes, for what is in doubt; nil = those that Tokens
	// was given by Handle, and by Middleware with a name
	Routes   func() []string
	Workers  *workerlease.Pools // may be asked for the pools of the store, used here or not
	Counters *counter.Counters
	Segments *segment.Segments
	Source   *redissource.Source // of Segments, where their ids come from counters of the store
}

// Show adds all metrics that are read from a program at each scrape, beside those that the observer
// counts: the connections of its store, what is in doubt there, what the program tries again in the
// background, and those of its other parts. It is called once.
func (s *Store) Show(p Program) {
	s.showConnections(p.Store)
	if p.Tokens == nil { // what is in doubt is so in the store, for every program
		p.Tokens = idempotency.New(p.Store, idempotency.Config{})
	}
	if p.Routes == nil {
		p.Routes = p.Tokens.Routes
	}
	s.showBacklogs(p.Tokens)
	s.doubts = doubt.New(p.Store, p.Tokens, p.Routes)
	s.showDoubts()
	if p.Workers != nil {
		s.rings = &rings{pools: p.Workers}
		s.rings.show(s.Registry)
	}
	if p.Counters != nil || p.Source != nil {
		s.showMoves(p.Counters, p.Source)
	}
	if p.Segments != nil {
		s.showSegments(p.Segments)
	}
}

// LookAgain has the next scrape ask Redis what is in doubt and for the rings of worker ids, however
// often that was done: for a program that has just changed them.
func (s *Store) LookAgain() {
	if s.doubts != nil {
		s.doubts.Forget()
	}
	if s.rings != nil {
		s.rings.forget()
	}
}
