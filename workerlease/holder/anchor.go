package holder

import "time"

// anchor is a clock: the server's time at a local moment, carried on by the local monotonic clock
// from there.
type anchor struct{ time, at time.Time }

func (a anchor) read(local time.Time) time.Time { return a.time.Add(local.Sub(a.at)) }

// moved returns the clock after a reply with the server's time, to a request that was sent and
// answered at those local moments. The server's time at the answer lies between what the reply says
// and that plus the time of the round trip: inside of these bounds the clock goes on as it is, else
// it is set to the nearer one.
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
