// Package resolvers has services that keep the table of operations of docs/effects.md killed and
// stopped, behind two gateways whose routes have a resolver, while many clients ask for each key.
// It has only tests.
//
// Each service is a real one, a primary with three workers, which keeps its payments in a real
// database, by the statements as they stand on that page:
//
//   - gunicorn with PostgreSQL, puma with SQLite, node with PostgreSQL, Go with MariaDB.
//
// Two gateways, processes of the built program with ack all, stand before it, on a Redis with a
// replica and three sentinels. Twenty clients for each key repeat their request at both until they
// have its answer. Meanwhile a worker, the whole service, a gateway or the master of Redis is
// killed; a worker is stopped for longer than the gateway waits, a gateway for longer than its
// leases, or the master until it is replaced, and then goes on. One payment of fifteen takes about
// as long as the gateway waits. One key of ten is asked for once, by a client that then goes away.
// At the end a gateway is killed with requests under way that nobody repeats: the list of doubts
// alone has them.
//
// What must hold:
//
//   - each key that clients repeat has one payment in the database, and a key that was asked for
//     once has at most one;
//   - every client gets an answer, all answers of a key are equal, and they name that payment;
//   - a minute after the last fault no operation is in doubt, and nobody has settled any;
//   - all of this also when everything in Redis is lost after that, and all clients ask again.
//
// The same load without a resolver leaves doubts, which are counted. Of what is wrong on purpose, a
// resolver that only looks, beside payments without a table of operations, must be found to let a
// payment happen twice.
//
// Consumers of a queue (Go by idempotency.Do, Python and Node by run_once over HTTP) and coatcheck
// once with --resolve are killed at random moments, with the same rules. Under the consumers the
// master is killed once.
//
//	go test -tags=check -v ./chaos/resolvers                                # 40 keys, 8 clients each
//	go test -tags=check -v ./chaos/resolvers -args -keys=500 -duplicates=20 # as in docs/proof.md
package resolvers
