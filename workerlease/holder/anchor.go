package holder

import "time"

// anchor is a clock: the server's time at a local moment, carried on by the monotonic clock.
type anchor struct{ time, at time.Time }

func (a anchor) read(local time.Time) time.Time { return a.time.Add(local.Sub(a.at)) }

// moved returns the clock after a reply with the server's time, to a request that was sent and
// answered at those local moments. When the answer comes, the server's time is between the reply's
// and that plus the round trip: within these bounds the clock stays as it is, else it is set to the
// nearer bound.
func (a anchor) moved(server, sent, answered time.Time) anchor {
	at := a.read(answered)
	earliest, latest := server, server.Add(answered.Sub(sent))
	switch {
	case at.Before(earliest):
		at = earliest
	case at.After(latest):
		at = latest
	}
	return anchor{time: at, at: answered}
}
