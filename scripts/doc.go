// Package scripts holds every operation that coatcheck runs inside Redis, one Lua file each.
//
// What each script promises: it is one decision, taken at one moment of the server's time; every
// key it touches is in KEYS, and the keys of one call share a hash tag, so that they live in one
// slot of a cluster; its reply is a flat list of strings whose first is the outcome in one word;
// asking again with the same owner, nonce or request id answers the same, so that a lost reply can
// be asked for again. Numbers above 2^53 cross as strings. A script reads before it writes: one
// that answers with an error about the type of a key has changed nothing, and likewise one that
// refuses a record of a newer format than it knows (lib/format).
//
// The header of each file names its library parts (Uses), KEYS, ARGV, Reply, Units and Effect; a
// test refuses a file without them. A part only defines functions and values. Each definition that
// a script needs is placed before the first statement that needs it, and the others are left out,
// so a script that answers the common case first defines nothing for the rest. Scripts need Redis
// 6.2 or later, or Valkey; the embedded store runs the same files.
package scripts
