// Package access says who a caller is and what they may do: API keys, client certificates, roles,
// names, and how often they may ask.
//
// What holds:
//
//   - A key's secret has 256 random bits and is stored nowhere: records have its SHA-256. A slow
//     hash would add nothing: it is made for what people choose and can be guessed, and no one
//     tries 2^255 secrets, however fast. It would make each request slow instead.
//   - A wrong secret is compared in constant time, and an id that there is not costs the same as
//     one with a wrong secret.
//   - A right secret passes, however many wrong ones came before it: only failures are slowed, see
//     [Lockout]. What keeps a secret from being guessed is its length.
//   - What is in force is replaced as a whole: a request sees one state of all records. A file with
//     a fault, or a Redis that does not answer, leaves what was read last in force; a key that was
//     removed from Redis is refused within [Config].Every after Redis has answered again.
//   - A record past its not_after is refused, by this process's clock.
//   - A limit is counted in Redis, for all servers together. While Redis does not answer, each
//     server counts by itself.
//
// What does not: a key that was refused here can still be at work in a request that began before;
// and a process that can write to the Redis, or to the file, can give themselves any right.
package access
