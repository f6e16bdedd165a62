package segment

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/coatcheck/coatcheck/internal/fault"
)

// DefaultLeafTable is the default of [LeafConfig].Table.
const DefaultLeafTable = "leaf_alloc"

// The answers of an SQL source besides [ErrNotFound] and [ErrExhausted]: nothing was changed.
var (
	// ErrBadRow means that a tag's row holds values that make no range, such as a step below 0.
	ErrBadRow = fault.Refusal("segment: the tag's row cannot be used")
	// ErrRetired means that the tag hands out nothing any more: its step is 0.
	ErrRetired = fault.Refusal("segment: the tag is retired")
	// ErrTagExists means that a tag cannot be seeded, since it is there.
	ErrTagExists = fault.Refusal("segment: the tag exists")
)

// LeafConfig is the settings of a [LeafAlloc]. The zero value of each field means its default.
type LeafConfig struct {
	Table string // its name, with or without a schema; the case counts; "" = DefaultLeafTable
	// of one transaction, within the context's deadline: 10ms to 10m; 0 = DefaultTimeout
	Timeout time.Duration
}

func (c LeafConfig) withDefaults() LeafConfig {
	c.Table = cmp.Or(c.Table, DefaultLeafTable)
	c.Timeout = cmp.Or(c.Timeout, DefaultTimeout)
	return c
}

// Check returns all faults of a LeafConfig.
func (c LeafConfig) Check() error {
	c = c.withDefaults()
	return errors.Join(checkTable(c.Table), inRange("timeout", c.Timeout, 10*time.Millisecond, 10*time.Minute))
}

// LeafAlloc is a [Source] in an SQL database: the table leaf_alloc of Meituan's Leaf, a row for
// each tag. It and Leaf's own servers can take from one table at the same time. It is safe for
// concurrent use, and so are any number of them on one table.
type LeafAlloc struct {
	database   database
	statements leafStatements
}

var _ Source = (*LeafAlloc)(nil)

// NewLeafAlloc returns the tags of a table. It does not read from the database. The caller closes
// the database. It panics for an unknown dialect and if [LeafConfig.Check] returns an error.
func NewLeafAlloc(db *sql.DB, dialect Dialect, config LeafConfig) *LeafAlloc {
	if err := errors.Join(checkDialect(dialect), config.Check()); err != nil {
		panic(err)
	}
	config = config.withDefaults()
	return &LeafAlloc{database{db, dialect, config.Timeout}, leafStatementsFor(dialect, config.Table)}
}

// Take takes the next range of a tag: [max_id − step, max_id) as one transaction has moved max_id.
// With step 0 it is the row's step, which is Range.Step in any case and never written here.
//
// It returns [ErrNotFound], also where only the case of a letter differs, [ErrExhausted],
// [ErrRetired], [ErrBadRow] and [ErrInvalid] with nothing changed. Other errors are
// [redisstore.ErrUnavailable] if the transaction has not been committed, and
// [redisstore.ErrUnknownOutcome] if it may have been. Nothing is sent twice.
func (l *LeafAlloc) Take(ctx context.Context, tag string, step int64) (Range, error) {
	if step < 0 {
		return Range{}, fmt.Errorf("%w: step %d is negative", ErrInvalid, step)
	}
	if !tagName(tag) {
		return Range{}, ErrNotFound
	}
	var taken Range
	err := l.database.transact(ctx, "leaf_alloc take", func(ctx context.Context, tx *transaction) (err error) {
		taken, err = l.take(ctx, tx, tag, step)
		return err
	})
	if err != nil {
		return Range{}, err
	}
	return taken, nil
}

func (l *LeafAlloc) take(ctx context.Context, tx *transaction, tag string, step int64) (Range, error) {
	statement, args := l.statements.take, []any{tag}
	if step > 0 {
		statement, args = l.statements.takeStep, []any{step, tag, step}
	}
	changed, number, err := tx.exec(ctx, statement, args...)
	if err != nil {
		return Range{}, err
	}
	row, err := l.row(ctx, tx, tag)
	switch {
	case err != nil:
		return Range{}, err
	case changed == 0:
		return Range{}, row.refusal(step)
	case tx.dialect == DialectMySQL && number != row.maxID:
		return Range{}, fmt.Errorf("%w: max_id was moved to %d and is %d: the table is not transactional, or max_id no BIGINT", ErrBadRow,
			number, row.maxID)
	case step == 0:
		step = row.step
	}
	return Range{Lo: row.maxID - step, Hi: row.maxID, Step: row.step}, nil
}

// leafRow is the columns that make a range.
type leafRow struct{ maxID, step int64 }

// row reads a tag's row. It refuses that of another tag, which a collation may take for this one.
func (l *LeafAlloc) row(ctx context.Context, tx *transaction, tag string) (row leafRow, err error) {
	var name string
	err = tx.row(ctx, l.statements.row, []any{tag}, &name, &row.maxID, &row.step)
	if errors.Is(err, sql.ErrNoRows) || err == nil && name != tag {
		return leafRow{}, ErrNotFound
	}
	return row, err
}

// refusal is why nothing can be taken from a row.
func (r leafRow) refusal(step int64) error {
	switch {
	case r.step == 0:
		return ErrRetired
	case r.step < 0 || r.maxID < 0:
		return fmt.Errorf("%w: step %d, max_id %d", ErrBadRow, r.step, r.maxID)
	case r.maxID > math.MaxInt64-cmp.Or(step, r.step):
		return ErrExhausted
	}
	return fmt.Errorf("%w: it was changed meanwhile", ErrBadRow)
}
