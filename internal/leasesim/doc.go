// Package leasesim holds a randomised simulation of the worker-id lease protocol, of
// scripts/worker_*.lua together with package holder: many clients on a ring of worker ids, servers
// that replicate, and faults, in memory, in simulated time, each run made from one seed. It has
// only tests.
//
// A run checks, whenever a grant or renewal is confirmed and whenever an id is stamped:
//
//   - no two confirmed windows of one worker id intersect, and no timestamp is stamped twice with
//     one worker id. A holder may use all of its window until it has stopped, however long it was
//     paused or suspended; of one that has stopped, what it has stamped counts.
//   - Fences grow: a grant that was made later has a larger one, in the whole pool.
//   - A stamp is not ahead of the truth by more than S/2 and the generator's lead, and not behind
//     it by more than TTL + S.
//   - No client counts on a lease more than S after the worker id was granted to another one.
//   - While one server serves all the time, no renewal in time is refused, and slots rest for the
//     cool-down.
//
// The first two hold whatever faults there are. The next two hold as long as a suspended process is
// not at the same time deceived by its wall clock.
//
// README.md has the faults and the assumptions, testdata/rules.tsv what each rule and assumption is
// for: a seed that breaks a promise when it is removed.
package leasesim
