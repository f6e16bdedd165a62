package monitoring_test

import (
	"maps"
	"math"
	"slices"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"
)

// series is one of an hour, in which a value begins with start and grows by slope with each sample;
// or it has values of its own, NaN where it has none.
type series struct {
	metric       string
	of           map[string]string
	start, slope float64
	values       []float64
}

func (s series) samples() (all []chunks.Sample) {
	if s.values != nil {
		for i, value := range s.values {
			if !math.IsNaN(value) {
				all = append(all, point{int64(i) * scraped.Milliseconds(), value})
			}
		}
		return all
	}
	for i := range int(now.Unix()/int64(scraped.Seconds())) + 1 {
		all = append(all, point{int64(i) * scraped.Milliseconds(), s.start + s.slope*float64(i)})
	}
	return all
}

// memory is a storage with samples every 15 seconds.
func memory(all []series) storage.Queryable {
	return &storage.MockQueryable{MockQuerier: &storage.MockQuerier{SelectMockFunction: func(_ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
		var found []storage.Series
		for _, one := range all {
			of := maps.Clone(one.of)
			of["__name__"] = one.metric
			lset := labels.FromMap(of)
			if slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return !m.Matches(lset.Get(m.Name)) }) {
				continue
			}
			found = append(found, storage.NewListSeries(lset, one.samples()))
		}
		return &listed{all: found}
	}}}
}

// listed is a set of series in a slice.
type listed struct {
	all []storage.Series
	at  int
}

func (l *listed) Next() bool                      { l.at++; return l.at <= len(l.all) }
func (l *listed) At() storage.Series              { return l.all[l.at-1] }
func (*listed) Err() error                        { return nil }
func (*listed) Warnings() annotations.Annotations { return nil }

// point is a value at a time in milliseconds.
type point struct {
	at    int64
	value float64
}

func (p point) T() int64                    { return p.at }
func (point) ST() int64                     { return 0 }
func (p point) F() float64                  { return p.value }
func (point) H() *histogram.Histogram       { return nil }
func (point) FH() *histogram.FloatHistogram { return nil }
func (point) Type() chunkenc.ValueType      { return chunkenc.ValFloat }
func (p point) Copy() chunks.Sample         { return p }
