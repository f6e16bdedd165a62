// Package onstore has the calls on a store that only our packages use: they run scripts, name the
// keys of records and visit masters. Package redisstore has the promises of the store itself.
package onstore
