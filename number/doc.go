// Package number writes counter values for people: as business numbers by a [Template]
// (ORD-20261121-000042), under a counter of its own for each day, week or year ([CalendarKey]), and
// as digits that do not reveal how many there are ([Opaque]). What holds:
//
//   - A template writes two different texts for two values, and for one value in two periods that
//     its date part distinguishes. A value with more digits than its width is refused and never
//     grows.
//   - A calendar key has one name for every moment that shows the same date on the zone's clock,
//     and another name for every other date. So a counter that counts anew with each name, and a
//     template that distinguishes those names ([Template.Fits]), never make one number twice: not
//     on a day of 23 or 25 hours, not in the hour that autumn repeats, not in the week that belongs
//     to two years. Both have to be asked with the same moment, in the same zone: read the clock
//     once.
//   - An opaque number of a key, a width and a tweak belongs to exactly one value, and the holder
//     of the key gets the value back.
//
// What does not hold: the package makes no value, and does not know which were handed out. A
// template and a key that are asked with different moments or zones can disagree about the date. A
// number that decodes was not necessarily ever given out.
//
// Everything here is pure: no clock is read, no file (a zone comes as a *time.Location), and only
// the standard library is imported. All of it is safe for concurrent use.
package number
