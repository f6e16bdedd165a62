package segment

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"
)

// DefaultSequenceTable is the default of [SequenceConfig].Table.
const DefaultSequenceTable = "segment_sequence"

// SequenceConfig is the settings of a [Sequence]. The zero value of each field means its default.
type SequenceConfig struct {
	Table string // its name, with or without a schema; the case counts; "" = DefaultSequenceTable
	// of one transaction, within the context's deadline: 10ms to 10m; 0 = DefaultTimeout
	Timeout time.Duration
}

func (c SequenceConfig) withDefaults() SequenceConfig {
	c.Table = cmp.Or(c.Table, DefaultSequenceTable)
	c.Timeout = cmp.Or(c.Timeout, DefaultTimeout)
	return c
}

// Check returns all faults of a SequenceConfig.
func (c SequenceConfig) Check() error {
	c = c.withDefaults()
	return errors.Join(
		checkTable(c.Table),
		inRange("timeout", c.Timeout, 10*time.Millisecond, 10*time.Minute),
	)
}

// Sequence is a [Source] that has an SQL database count: a table with a row for each tag, whose
// number is replaced by the next one of the table's own sequence. In MySQL and MariaDB that is
// REPLACE INTO a table with AUTO_INCREMENT, in PostgreSQL an identity column that is set to its
// default. The number k of a tag that was seeded with first and step stands for the ids first +
// [k·step, (k+1)·step).
//
// All tags of a table share its sequence, so the ids of one have gaps where others took a number.
// It is safe for concurrent use, and so are any number of them on one table.
type Sequence struct {
	database   database
	statements sequenceStatements
}

var _ Source = (*Sequence)(nil)

// NewSequence returns the tags of a table. It does not read from the database. The caller closes
// the database. It panics for an unknown dialect and if [SequenceConfig.Check] returns an error.
func NewSequence(db *sql.DB, dialect Dialect, config SequenceConfig) *Sequence {
	if err := errors.Join(checkDialect(dialect), config.Check()); err != nil {
		panic(err)
	}
	config = config.withDefaults()
	return &Sequence{database{db, dialect, config.Timeout}, sequenceStatementsFor(dialect, config.Table)}
}

// Take takes the next number of the sequence, and returns the ids that it stands for: as many as
// the tag's step, whatever it was asked for.
//
// It returns [ErrNotFound], [ErrExhausted] and [ErrBadRow] with nothing handed out. Other errors
// are [redisstore.ErrUnavailable] if the transaction has not been committed, and
// [redisstore.ErrUnknownOutcome] if it may have been. Nothing is sent twice. Each of them may cost
// a number: a gap.
func (s *Sequence) Take(ctx context.Context, tag string, _ int64) (taken Range, err error) {
	if !tagName(tag) {
		return Range{}, ErrNotFound
	}
	err = s.database.transact(ctx, "sequence take", func(ctx context.Context, tx *transaction) error {
		if err := s.queue(ctx, tx); err != nil {
			return err
		}
		row, err := s.row(ctx, tx, tag)
		if err != nil {
			return err
		}
		number, err := s.next(ctx, tx, tag, row)
		if err != nil {
			return err
		}
		taken, err = row.ids(number)
		return err
	})
	if err != nil {
		return Range{}, err
	}
	return taken, nil
}

// queue serializes all transactions on a table of MySQL. Two that replace one row would deadlock,
// and every second one would be refused.
func (s *Sequence) queue(ctx context.Context, tx *transaction) error {
	if tx.dialect != DialectMySQL {
		return nil
	}
	var id int64
	err := tx.row(ctx, s.statements.queue, nil, &id)
	if errors.Is(err, sql.ErrNoRows) {
		return errors.New("the table lacks its row without a stub, which CreateTable adds")
	}
	return err
}

// next replaces the row's number. The row is locked, so that its step and its first id are what the
// number is multiplied and added to.
func (s *Sequence) next(ctx context.Context, tx *transaction, tag string, row sequenceRow) (number int64, err error) {
	if tx.dialect == DialectPostgreSQL {
		return number, tx.row(ctx, s.statements.next, []any{tag}, &number)
	}
	_, number, err = tx.exec(ctx, s.statements.next, tag, row.step, row.first)
	return number, err
}

// sequenceRow is the seed of a tag.
type sequenceRow struct{ step, first int64 }

func (s *Sequence) row(ctx context.Context, tx *transaction, tag string) (row sequenceRow, err error) {
	err = tx.row(ctx, s.statements.lock, []any{tag}, &row.step, &row.first)
	if errors.Is(err, sql.ErrNoRows) {
		err = ErrNotFound
	}
	return row, err
}

// ids returns the ids that a number stands for.
func (r sequenceRow) ids(number int64) (Range, error) {
	if number < 0 || r.first < 0 || r.step < 1 {
		return Range{}, fmt.Errorf("%w: number %d, first id %d, step %d", ErrBadRow, number, r.first, r.step)
	}
	if number >= (math.MaxInt64-r.first)/r.step {
		return Range{}, ErrExhausted
	}
	lo := r.first + number*r.step
	return Range{Lo: lo, Hi: lo + r.step, Step: r.step}, nil
}

// CreateTable creates the table if it is not there, and reports whether it has the columns that it
// needs. It can be repeated after any answer, and called by several at once.
func (s *Sequence) CreateTable(ctx context.Context) error {
	const op = "sequence create table"
	if err := s.database.create(ctx, op, s.statements.create, s.statements.probe); err != nil || s.database.dialect != DialectMySQL {
		return err
	}
	return s.database.transact(ctx, op, func(ctx context.Context, tx *transaction) error {
		_, _, err := tx.exec(ctx, s.statements.gate)
		return err
	})
}

// Seed adds a tag whose ids are first and above, and whose numbers stand for step ids each (1 to
// 2^31 − 1). A tag that is there stays as it is: [ErrTagExists].
func (s *Sequence) Seed(ctx context.Context, tag string, first, step int64) error {
	if err := checkSeed(tag, first, step, ""); err != nil {
		return err
	}
	return s.database.transact(ctx, "sequence seed", func(ctx context.Context, tx *transaction) error {
		var there sequenceRow
		err := tx.row(ctx, s.statements.read, []any{tag}, &there.step, &there.first)
		switch {
		case err == nil:
			return fmt.Errorf("%w: with step %d, and first id %d", ErrTagExists, there.step, there.first)
		case errors.Is(err, sql.ErrNoRows):
			_, _, err = tx.exec(ctx, s.statements.insert, tag, step, first)
		}
		return err
	})
}

type sequenceStatements struct{ create, probe, gate, queue, read, lock, next, insert string }

var sequenceCreate = map[Dialect]string{
	DialectMySQL: `CREATE TABLE IF NOT EXISTS {table} (
	id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
	stub VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin NOT NULL UNIQUE,
	step BIGINT NOT NULL,
	first_id BIGINT NOT NULL
) ENGINE = InnoDB`,
	DialectPostgreSQL: `CREATE TABLE IF NOT EXISTS {table} (
	id BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
	stub VARCHAR(128) NOT NULL UNIQUE,
	step BIGINT NOT NULL,
	first_id BIGINT NOT NULL
)`,
}

// sequenceNext is how a row gets the next number. A bare nextval would do in PostgreSQL but for one
// thing: it writes ahead for 32 numbers, and only the transaction that did so waits for the disk. A
// number that another transaction gets out of those can come again after a crash. A transaction
// that changes a row waits in any case.
var sequenceNext = map[Dialect]string{
	DialectMySQL:      "REPLACE INTO {table} (stub, step, first_id) VALUES (?, ?, ?)",
	DialectPostgreSQL: "UPDATE {table} SET id = DEFAULT WHERE stub = ? RETURNING id",
}

func sequenceStatementsFor(dialect Dialect, table string) sequenceStatements {
	filled := strings.NewReplacer("{table}", dialect.quoted(table)).Replace
	return sequenceStatements{
		create: filled(sequenceCreate[dialect]),
		probe:  filled("SELECT id, stub, step, first_id FROM {table} WHERE 1 = 0"),
		gate:   filled("INSERT IGNORE INTO {table} (stub, step, first_id) VALUES ('', 0, 0)"),
		queue:  filled("SELECT id FROM {table} WHERE stub = '' FOR UPDATE"),
		read:   filled("SELECT step, first_id FROM {table} WHERE stub = ?"),
		lock:   filled("SELECT step, first_id FROM {table} WHERE stub = ? FOR UPDATE"),
		next:   filled(sequenceNext[dialect]),
		insert: filled("INSERT INTO {table} (stub, step, first_id) VALUES (?, ?, ?)"),
	}
}
