// Package redistest gives a test a Redis of its own: one server, a Sentinel set or a Cluster, on
// free loopback ports, gone when the test ends. Or it gives it a part of one that all tests of the
// binary share.
//
//	srv := redistest.Start(t)
//	store, err := redisstore.Open(t.Context(), srv.URL())
//	...
//	srv.Kill() // and see what the code under test makes of it
//
// A test that needs some Redis and leaves it as it is shares one with all others of the binary,
// which costs no start:
//
//	redis := redistest.Shared(t)
//	store, err := redisstore.OpenConfig(t.Context(), redisstore.Config{URL: redis.URL, Prefix: redis.Prefix})
//
// What a test may rely on:
//
//   - When a Start function returns, the servers answer. A Sentinel set knows all its members, so
//     the master may be killed at once; a cluster serves every slot on every node.
//   - A server that does not come up fails the test, with the last lines of the server's log. So
//     does a machine without redis-server: nothing here ever skips.
//   - Nothing outlives the test. Servers end with the test's cleanup; on Linux they also end when
//     the test binary is killed, however that happens. Shared servers end with the test binary.
//   - A server keeps its port through Kill, Stop and Restart. On Linux the port is reserved all
//     that while, so no other program is given it; elsewhere it is only unlikely.
//   - A test that failed shows the end of each server's log.
//
// Servers run without persistence and listen on 127.0.0.1 only. The environment variable
// REDIS_SERVER names another server binary, such as valkey-server. It has to understand the options
// of Redis 7.0, as every Valkey does.
//
// A server's configuration file and a cluster node's list of nodes lie beside its data directory,
// not in it. A server that comes back empty ([Server.RestartEmpty]) has therefore lost its keys,
// but still knows its role, as a machine does whose Redis keeps nothing on disk.
//
// Methods may be called from several goroutines. Those that can fail report it with t.Fatalf, which
// ends the calling goroutine, so a test that calls them from a goroutine of its own has to wait for
// that goroutine. The servers are processes in real time: they cannot be used inside a
// testing/synctest bubble. Unix only.
package redistest
