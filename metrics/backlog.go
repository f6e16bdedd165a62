package metrics

// Backlog is what a process tries again in the background for its tokens, of one kind.
type Backlog struct {
	Kind       string // a word of ours
	Operations int    // that it is about
	Bytes      int    // that it holds
	Dropped    int64  // given up since the start
}

// ShowBacklogs adds what is tried again in the background, which is asked for at each scrape.
func ShowBacklogs(r *Registry, ask func() []Backlog) {
	show := func(name string, kind Kind, help string, value func(Backlog) float64) {
		r.Ask(name, kind, help, []string{"kind"}, func(tell Tell) {
			for _, backlog := range ask() {
				tell(value(backlog), backlog.Kind)
			}
		})
	}
	show("coatcheck_token_backlog_operations", Gauge,
		"Operations of which something is tried again in the background: answer (it could not be recorded yet), claim (it is to be "+
			"given back, since nothing was started for it).",
		func(b Backlog) float64 { return float64(b.Operations) })
	show("coatcheck_token_backlog_bytes", Gauge, "Memory that these hold.", func(b Backlog) float64 { return float64(b.Bytes) })
	show("coatcheck_token_backlog_dropped_total", Counter,
		"Of these, how many were given up, since there was no room or no time: their operations may be in doubt.",
		func(b Backlog) float64 { return float64(b.Dropped) })
}
