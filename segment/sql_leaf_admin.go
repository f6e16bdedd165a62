package segment

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"time"
	"unicode/utf8"
)

// LeafTag is a row of a [LeafAlloc]'s table, as Leaf's page /db shows it.
type LeafTag struct {
	Tag         string
	MaxID       int64 // all ids that were handed out are below it
	Step        int64 // how many ids a fetch takes at least; 0 = retired
	Description string
	Updated     time.Time // to the second
}

// CreateTable creates the table if it is not there, and reports whether it has the columns that it
// needs. It can be repeated after any answer, and called by several at once.
func (l *LeafAlloc) CreateTable(ctx context.Context) error {
	return l.database.create(ctx, "leaf_alloc create table", l.statements.create, l.statements.probe)
}

// Seed adds a tag whose first id is maxID, and whose fetches take step ids (1 to 2^31 − 1). A tag
// that is there stays as it is: [ErrTagExists].
func (l *LeafAlloc) Seed(ctx context.Context, tag string, maxID, step int64, description string) error {
	if err := checkSeed(tag, maxID, step, description); err != nil {
		return err
	}
	return l.database.transact(ctx, "leaf_alloc seed", func(ctx context.Context, tx *transaction) error {
		return l.insert(ctx, tx, tag, maxID, step, description)
	})
}

func checkSeed(tag string, maxID, step int64, description string) error {
	switch {
	case !tagName(tag):
		return fmt.Errorf("%w: tag %q: 1 to 128 characters of A–Z a–z 0–9 . _ : ~ @ -", ErrInvalid, tag)
	case maxID < 0:
		return fmt.Errorf("%w: first id %d is negative", ErrInvalid, maxID)
	case step < 1 || step > math.MaxInt32:
		return fmt.Errorf("%w: step %d: 1 to %d", ErrInvalid, step, math.MaxInt32)
	case utf8.RuneCountInString(description) > 256 || !utf8.ValidString(description):
		return fmt.Errorf("%w: the description has more than 256 characters, or is not UTF-8", ErrInvalid)
	}
	return nil
}

func (l *LeafAlloc) insert(ctx context.Context, tx *transaction, tag string, maxID, step int64, description string) error {
	var name string
	var there leafRow
	err := tx.row(ctx, l.statements.row, []any{tag}, &name, &there.maxID, &there.step)
	switch {
	case err == nil:
		return fmt.Errorf("%w: %s has max_id %d and step %d", ErrTagExists, name, there.maxID, there.step)
	case errors.Is(err, sql.ErrNoRows):
		_, _, err = tx.exec(ctx, l.statements.insert, tag, maxID, step, description)
	}
	return err
}

// Advance moves a tag's max_id up to atLeast, so that the ids below it are never handed out from
// now on, and returns the new max_id. It never lowers it.
func (l *LeafAlloc) Advance(ctx context.Context, tag string, atLeast int64) (maxID int64, err error) {
	return l.change(ctx, "leaf_alloc advance", tag, func(ctx context.Context, tx *transaction) error {
		_, _, err := tx.exec(ctx, l.statements.advance, atLeast, tag, atLeast)
		return err
	})
}

// Retire ends a tag: its step becomes 0, and every later Take gets [ErrRetired]. All ids that were
// handed out are below the max_id that it returns. It can be repeated, and returns the same then.
// Leaf's own servers take no notice of it.
func (l *LeafAlloc) Retire(ctx context.Context, tag string) (maxID int64, err error) {
	return l.change(ctx, "leaf_alloc retire", tag, func(ctx context.Context, tx *transaction) error {
		_, _, err := tx.exec(ctx, l.statements.retire, tag)
		return err
	})
}

// change makes a change of a tag's row that can be repeated, and returns the max_id after it. A
// database that takes another tag for this one changes nothing: row refuses.
func (l *LeafAlloc) change(ctx context.Context, op, tag string, steps func(context.Context, *transaction) error) (maxID int64, err error) {
	if !tagName(tag) {
		return 0, ErrNotFound
	}
	var row leafRow
	err = l.database.transact(ctx, op, func(ctx context.Context, tx *transaction) (err error) {
		if err := steps(ctx, tx); err != nil {
			return err
		}
		row, err = l.row(ctx, tx, tag)
		return err
	})
	if err != nil {
		return 0, err
	}
	return row.maxID, nil
}

// Open makes sure that a tag is there, not retired, and at atLeast or above. It can be repeated.
func (l *LeafAlloc) Open(ctx context.Context, tag string, atLeast, step int64, description string) error {
	if err := checkSeed(tag, atLeast, step, description); err != nil {
		return err
	}
	return l.database.transact(ctx, "leaf_alloc open", func(ctx context.Context, tx *transaction) error {
		err := l.insert(ctx, tx, tag, atLeast, step, description)
		if !errors.Is(err, ErrTagExists) {
			return err
		}
		if _, _, err := tx.exec(ctx, l.statements.advance, atLeast, tag, atLeast); err != nil {
			return err
		}
		if _, _, err := tx.exec(ctx, l.statements.revive, step, tag); err != nil {
			return err
		}
		_, err = l.row(ctx, tx, tag) // refuses what was changed if it was another tag's
		return err
	})
}

// Tags lists the table's rows in the order of their tags, as its collation has it.
func (l *LeafAlloc) Tags(ctx context.Context) ([]LeafTag, error) {
	ctx, cancel := context.WithTimeout(ctx, l.database.timeout)
	defer cancel()
	tags, err := l.tags(ctx)
	if err != nil {
		return nil, failure(ctx, "leaf_alloc tags", ErrDatabase, err)
	}
	return tags, nil
}

func (l *LeafAlloc) tags(ctx context.Context) (tags []LeafTag, err error) {
	rows, err := l.database.db.QueryContext(ctx, l.statements.list)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var tag LeafTag
		var seconds sql.NullInt64
		if err := rows.Scan(&tag.Tag, &tag.MaxID, &tag.Step, &tag.Description, &seconds); err != nil {
			return nil, err
		}
		if seconds.Valid {
			tag.Updated = time.Unix(seconds.Int64, 0).UTC()
		}
		tags = append(tags, tag)
	}
	return tags, rows.Err()
}
