package metrics

import (
	"github.com/coatcheck/coatcheck/counter"
	"github.com/coatcheck/coatcheck/segment"
	"github.com/coatcheck/coatcheck/segment/redissource"
)

func (s *Store) showMoves(counters *counter.Counters, source *redissource.Source) {
	s.Ask("coatcheck_counter_moves_total", KindCounter,
		"Counters, and segments' counters, that were behind, or may have been, and were moved past all values that can have been "+
			"handed out.", []string{"kind"}, func(tell Tell) {
			if counters != nil {
				tell(float64(counters.Totals().Moved), "counter")
			}
			if source != nil {
				tell(float64(source.Totals().Moved), "segment")
			}
		})
}

func (s *Store) showSegments(segments *segment.Segments) {
	show := func(name string, kind Kind, help string, value func(segment.Totals) float64) {
		s.Ask(name, kind, help, nil, func(tell Tell) { tell(value(segments.Totals())) })
	}
	show("coatcheck_segment_tags", KindGauge, "Tags of segments that are in use.",
		func(t segment.Totals) float64 { return float64(t.Tags) })
	show("coatcheck_segment_starvations_total", KindCounter,
		"Times that callers found no id of a tag in use: one from when the first of them did until a range came.",
		func(t segment.Totals) float64 { return float64(t.Starved) })
	show("coatcheck_segment_went_back_total", KindCounter,
		"Ranges that were refused, since they were not wholly beyond those before: the source has gone back.",
		func(t segment.Totals) float64 { return float64(t.WentBack) })
	show("coatcheck_segment_let_go_total", KindCounter,
		"Tags that were let go because they were not used.", func(t segment.Totals) float64 { return float64(t.LetGo) })
	s.Ask("coatcheck_segment_fetches_total", KindCounter,
		"Fetches of ranges for tags, by whether they brought one.", []string{"outcome"}, func(tell Tell) {
			totals := segments.Totals()
			tell(float64(totals.Fetches), Done)
			tell(float64(totals.Failures), Failed)
		})
}
