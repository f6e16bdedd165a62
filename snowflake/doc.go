// Package snowflake knows the layouts of Snowflake ids: how the bits of an id are shared between a timestamp, a worker id and a sequence, and what
// follows from that. It is pure: it does no I/O, reads no clock, and everything in it is safe for concurrent use.
package snowflake
