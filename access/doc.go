// Package access identifies callers and knows their rights: keys, certificates, roles and limits.
//
// What holds:
//
//   - A key's secret has 256 random bits and is stored nowhere: records have its SHA-256. A slow
//     hash would add nothing: it protects passwords, which can be guessed, and 2^255 secrets cannot
//     be tried, however fast. It would only slow down each request.
//   - A wrong secret is compared in constant time, and an unknown id costs the same as a wrong
//     secret.
//   - A right secret passes, however many wrong ones came before it. The length of a secret keeps
//     it from being guessed.
//   - Records are replaced as a whole: a request sees one state of all of them. A file with a
//     fault, or a Redis that does not answer, leaves the last state in force; a key that was
//     removed from Redis is refused within [Config].Every after Redis has answered again.
//   - A record past its not_after is refused, by this process's clock.
//   - A limit is counted in Redis, for all servers together. While Redis does not answer, each
//     server counts by itself.
//
// What does not: a key that was refused here can still be at work in a request that began before;
// and a process that can write to the Redis, or to the file, can give itself any right.
package access
