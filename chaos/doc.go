// Package chaos breaks a running coatcheck while clients use it, writes down everything that they
// are answered and everything that the handlers do, and checks it. It has tests and nothing else.
// README.md says how to run them, what they have counted and found, and how to see each finding.
//
// What must hold in every round, whatever broke and when:
//
//   - Under hold the handler runs at most once for each token or key, and so does its effect. An
//     issued token that Redis has lost never runs again, under either policy.
//   - Every request ends in time with one of the interface's answers, and one that can be right for
//     it; only a request to a process that was killed may go without. Every client comes to know:
//     the handler's answer, or that it cannot be known.
//   - What a client is given as the handler's answer is that of a run which had its effect. All
//     clients of an operation are given the same one, and once it was given, later requests get
//     nothing else.
//   - While clients hear only that nothing was done, nothing has run, and no attempt has the claim.
//   - Under takeover no fence comes twice, none is smaller than one before it, and only the newest
//     run's answer is recorded.
//
// What is not asked for, since it does not hold:
//
//   - While Redis is away an answer is sent before it is recorded. Until it is recorded later
//     requests may hear that it is in progress, that the outcome is unknown or that the store is
//     not available; then the answer has to come back. If the process that would record it is
//     killed as well, it does not.
//   - Under takeover an answer that was sent so, or by a process that was stopped while it recorded
//     it, may be followed by another attempt's: two clients are then given two answers. Only one is
//     recorded. A repeat asks for no confirmation: until Redis is whole again it may be given the
//     first one by a former master that goes on, with any ack.
//   - A process that was stopped for longer than its lease may send a request on when a newer
//     attempt has run. Its smaller fence comes after the larger one; the effect has to refuse it,
//     as the one here does.
//
// What is assumed: two replicas, one of which confirms every write (ack 1), and a Sentinel that
// fails over a master only if it is dead or hangs until the failover is over, and then promotes the
// replica that has received most. A master that is replaced while it serves loses what it confirms
// until it is told, unless both replicas confirm (ack 2). A round in which the sentinels did that
// by themselves, since this machine was too busy, is void: it is told, and too many of them fail
// the test.
package chaos
