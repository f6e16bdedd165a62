// Package proctest is what tests need to run a server as a process of their own: the process, whose
// exit is always collected and which ends with the test binary, and a loopback port that stays the
// server's while it is down. Packages redistest and sqltest start their servers with it. It also
// fetches packages of npm that tests run. Unix only.
package proctest
