package metrics

import "github.com/coatcheck/coatcheck/idempotency"

// showBacklogs adds what a process tries again in the background for its tokens.
func (s *Store) showBacklogs(tokens *idempotency.Tokens) {
	show := func(name string, kind Kind, help string, value func(idempotency.Backlog) float64) {
		s.Ask(name, kind, help, []string{"kind"}, func(tell Tell) {
			answers, claims := tokens.Backlogs()
			for _, backlog := range []idempotency.Backlog{answers, claims} {
				tell(value(backlog), backlog.Kind)
			}
		})
	}
	show("coatcheck_token_backlog_operations", KindGauge,
		"Operations of which something is tried again in the background: answer (it could not be recorded yet), claim (it is to be "+
			"given back, since nothing was started for it).",
		func(b idempotency.Backlog) float64 { return float64(b.Operations) })
	show("coatcheck_token_backlog_bytes", KindGauge, "Memory that these hold.",
		func(b idempotency.Backlog) float64 { return float64(b.Bytes) })
	show("coatcheck_token_backlog_dropped_total", KindCounter,
		"Of these, how many were given up, since there was no room or no time: their operations may be in doubt.",
		func(b idempotency.Backlog) float64 { return float64(b.Dropped) })
}
