//go:build check

package segments

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/coatcheck/coatcheck/counter"
	"github.com/coatcheck/coatcheck/internal/testing/sqltest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/segment"
	"github.com/coatcheck/coatcheck/segment/redissource"
)

// openSource opens what a role takes its ranges from: the store is a URL, or a database.
func openSource(ctx context.Context, role, store string) (source segment.Source, end func(), err error) {
	if role == "redis" {
		return openRedis(ctx, store)
	}
	one, err := openDatabase(store)
	if err != nil {
		return nil, nil, err
	}
	source, err = sourceOf(role, one)
	return source, func() { _ = one.Close() }, err
}

func sourceOf(role string, one database) (segment.Source, error) {
	switch role {
	case "leaf":
		return one.leaf(), nil
	case "sequence":
		return one.sequence(), nil
	case "unlocked":
		return unlocked{one.DB}, nil
	case "late":
		return &late{db: one.DB, next: map[string]int64{}}, nil
	}
	return nil, fmt.Errorf("no role is called %q", role)
}

// database is one that a process can open by what String says.
type database struct {
	*sql.DB

	kind          sqltest.Kind
	address, name string
}

func (d database) String() string {
	return strings.Join([]string{string(d.kind), d.address, d.name}, " ")
}

func openDatabase(text string) (d database, err error) {
	var kind string
	if _, err := fmt.Sscan(text, &kind, &d.address, &d.name); err != nil {
		return d, fmt.Errorf("%q: %w", text, err)
	}
	d.kind = sqltest.Kind(kind)
	d.DB, err = sqltest.Connect(d.kind, d.address, d.name)
	return d, err
}

func (d database) dialect() segment.Dialect {
	if d.kind == sqltest.PostgreSQL {
		return segment.DialectPostgreSQL
	}
	return segment.DialectMySQL
}

func (d database) leaf() *segment.LeafAlloc {
	return segment.NewLeafAlloc(d.DB, d.dialect(), segment.LeafConfig{})
}

func (d database) sequence() *segment.Sequence {
	return segment.NewSequence(d.DB, d.dialect(), segment.SequenceConfig{})
}

// onRedis takes from counters of the kind that the service has for segments.
type onRedis struct{ *counter.Counters }

func openRedis(ctx context.Context, url string) (segment.Source, func(), error) {
	store, err := redisstore.OpenConfig(ctx, redisstore.Config{URL: url})
	if err != nil {
		return nil, nil, err
	}
	counters := counter.New(store, redissource.Counters(counter.Config{}))
	return onRedis{counters}, func() { _, _ = counters.Close(), store.Close() }, nil
}

// Take implements segment.Source.
func (r onRedis) Take(ctx context.Context, tag string, wanted int64) (segment.Range, error) {
	got, err := r.IncrBy(ctx, tag, max(wanted, step))
	if err != nil {
		return segment.Range{}, err
	}
	return segment.Range{Lo: got.First, Hi: got.Last + 1, Step: step}, nil
}
