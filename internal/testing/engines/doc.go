// Package engines makes a redis-server look like another engine: a proxy in front of it hides what
// that engine does not tell, and refuses what it does not run, in its words.
//
//	server := redistest.Start(t)
//	proxy := engines.Start(t, server.Addr(), engines.Engine{NotInScripts: []string{"INFO"}})
//	store, err := redisstore.Open(t.Context(), proxy.URL())
//
// What the server does run, it runs: no script is imitated. A script is sent with a line before it
// that stands between it and redis.call.
//
// The proxy keeps its clients' connections when the server behind it ends or is replaced
// ([Proxy.Behind]), as those of Redis Software, Azure and Envoy do. A connection's HELLO, AUTH and
// SELECT are repeated at the new server. A subscription ends with its server.
package engines
