// Package loadgen calls an operation under load and records how long it takes.
//
// Without a rate it is a closed loop: as many callers as [Plan.Concurrency] call again as soon as
// they are answered. When what is measured stalls, so does the load, and the stall shows in few
// samples.
//
// With a rate it is an open loop: call n is meant for the moment start + n/rate, whatever became of
// those before it, and its latency is counted from that moment, not from when a caller came to send
// it. So what waits behind a stall is measured as its users would (no coordinated omission). How
// late calls were sent, by a timer or since all callers were busy, is [Result.Delay]; calls that
// were meant and never sent are [Result.Unsent], and then the rate was more than could be done.
//
// Failures do not end a run. They are counted by code, and their latencies are kept apart.
package loadgen
