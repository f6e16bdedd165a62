package redissource

import "github.com/coatcheck/coatcheck/counter"

// CountersOf are the counters of a source.
func CountersOf(s *Source) *counter.Counters { return s.counters }
