// Package doctor judges facts about a Redis, or about a running service, by what coatcheck
// promises: what was found, what that risks for tokens, worker ids, counters and locks, and the
// line that ends it. It asks no server and changes nothing: internal/redisprobe gathers the facts
// of a Redis, the command those of a service, and the same facts get the same judgement.
//
// What cannot be seen, such as the settings of a managed Redis that forbids CONFIG, is said to be
// so, as a note: nothing unseen is taken for fine. A Redis without a finding above a note can still
// lose what no setting tells of, such as a disk that confirms what it has not written.
package doctor
