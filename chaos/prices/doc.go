// Package prices measures what coatcheck's safety costs: how long it takes until the next id, value
// or lock is handed out after a restart, a loss or a failover, how far counters and segments jump
// for it, and what each setting of ack loses, and costs in seconds without answers, while servers
// of a Sentinel set or a cluster are killed, stopped and wiped. `make prices` runs it and writes
// the tables into docs/proof.md.
//
// A program is measured from outside, over HTTP and by its commands, so that one which was built
// from another state of the code is measured by the same command:
//
//	make prices                                            # this tree, into docs/proof.md
//	make prices ARGS='-program bin/older -json older.json' # another program, into a file as well
//	make prices ARGS='-before older.json'                  # this tree beside those figures
//
// Times begin when what was broken is back: Redis answers, and the service says where it listens.
// So they are the waiting that a safety asks for, and not how fast processes start. No figure is
// held against a limit. What fails the tests is a value, id or lock handed out twice where
// docs/guarantees.md promises that none is, and a service that never answers again.
package prices
