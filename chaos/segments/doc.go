// Package segments has processes draw ids of segments while they and the stores behind them are
// killed, and looks for ids that were handed out twice.
//
// Each process is a real one of its own with four clients that share one segment.Segments, over one
// kind of source: counters of a Redis that writes each command to its disk, LeafAlloc on MariaDB
// and on PostgreSQL, and Sequence on MariaDB. It writes down each range that its source gives it,
// before the package sees it, and each id that a client got, after that. Processes are killed
// with SIGKILL at random moments, one or all of them, and others come in their place; so are the
// servers, which come back with what they have confirmed.
//
// What must hold, by what is in the files and nothing else:
//
//   - No id of a tag is told twice, by whomever.
//   - An id that a process tells is one of a range that it was given.
//   - What a process leaves behind is what was fetched ahead: of each tag it has told all ids of
//     all ranges before the current one. When it was killed each of its clients may in addition
//     have had one id that it had not written down.
//   - Between the ranges that were given of a row of leaf_alloc there is at most one gap for each
//     Take that was cut off.
//
// That the check can find this is shown with histories that are put together, and by two allocators
// as they are often written: one that reads max_id and then writes it, without a transaction; and
// one that remembers the range that it is handing out, and writes it down when it is done.
package segments
