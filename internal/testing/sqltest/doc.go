// Package sqltest gives a test an SQL database server of its own, MariaDB or PostgreSQL, on a free
// loopback port, gone when the test ends.
//
//	sqltest.Each(t, func(t *testing.T, server *sqltest.Server) {
//		db := server.Open(t) // a new database
//		...
//		server.Kill() // and see what the code under test makes of it
//		server.Restart(t)
//	})
//
// What a test may rely on:
//
//   - When Start returns, the server answers. One that does not come up fails the test with the
//     last lines of its log, and so does a machine without its binaries, with the name of the
//     Debian package that has them. Nothing here ever skips.
//   - Nothing outlives the test: the server ends with the test's cleanup, and on Linux also when
//     the test binary is killed.
//   - A server keeps its port through Kill and Restart, and what it has confirmed. (It would not
//     through a crash of the machine: nothing waits for the disk.)
//   - Servers that are installed on the machine, their configuration and their data are not
//     touched, and servers of other tests do not disturb each other.
//
// Both servers are asked for by their plain binaries: mariadb-install-db and mariadbd, initdb and
// postgres, from PATH or from where Debian has them. PostgreSQL does not run as root: then it runs
// as user postgres, which its package makes. Methods fail the test where they cannot do what they
// should. Unix only.
package sqltest
