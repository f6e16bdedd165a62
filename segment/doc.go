// Package segment hands out ids from ranges that were fetched ahead of need: at the price of one
// atomic addition, with a round trip to the store only once in a while.
//
// A [Source] gives half-open ranges of ids that no two of its calls share. [Segments] keeps for
// each tag the range that ids are drawn from and the next one, which is fetched when a tenth of the
// current one is used. Everything is safe for concurrent use.
//
// # States
//
// The states of a tag, and the events that lead from one to the next:
//
//	unknown -- first draw --> fetching -- range --> drawing -- a tenth used --> next is fetched
//	   ^                         |                     ^                           |
//	   |<-- no such tag ---------+                     |<-- end of the range ------+ next is ready
//	   |                                               |                           |
//	   |<-- idle, or its place is needed --------------+<-- range -- starved <-----+ next is not ready
//	                                                                    |
//	                                                                    +-> the source's error
//
// # Promises
//
//   - No id of a tag is handed out twice by one process, whatever the source does. Across processes
//     none is, as long as the source keeps its promise. Each kind of source documents what it needs
//     for that.
//   - The ids that one caller gets rise, as far as the source's ranges rise: those with a distance
//     ([Range].Delta) may interleave, and rise only within their remainder.
//   - No id is skipped, but those that are lost: ids that were fetched and not drawn when the
//     process ends, an idle tag is dropped, or others may have had them ([Range].Valid), and those
//     of a Take whose answer is lost.
//   - A draw waits only where no range is ready. Its context ends the wait.
//   - There is at most one Take of a tag under way, and none without need: a tag without demand
//     causes no traffic, has no goroutine, and loses nothing unless it is dropped.
//
// # Failures of the source
//
// Callers notice nothing while ids are left. The source is asked again in the background, at first
// within a tenth of a second, in the end two to four times a minute. A caller that finds no id
// makes it asked at once, and gets its answer: a refusal, in which case nothing was taken, or an
// unknown outcome ([redisstore.ErrUnknownOutcome]), in which case a range may be taken that no
// process gets: a gap. A Take with an unknown outcome is not repeated. A Take that lasts for too
// long is given up, as an unknown outcome.
//
// # Bounds
//
// A restart wastes what was fetched and not drawn: less than two ranges of a tag, the rest of the
// current one and the next one; up to nine while eight are kept ready; and the range of a Take that
// is under way.
//
// Memory is bounded: at most [Config].MaxTags tags are in use, and as many names can be under way
// to the source for the first time. Nothing is kept for a tag that the source does not have. An
// unused tag is dropped after [Config].Idle, or, when the place is needed, after a quarter of an
// hour. The place of a tag in use is taken only for an owner with fewer tags, from the owner with
// the most ([Config].Owner), and never for a name that the source does not have. Use is observed
// late, so that it can take a quarter of an hour longer, or of Idle if that is shorter.
//
// See [Segments] for a source that goes back, and for how the step follows the demand.
package segment
