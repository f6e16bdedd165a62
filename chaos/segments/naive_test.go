//go:build check

package segments

import (
	"context"
	"database/sql"
	"sync"
	"time"

	"github.com/coatcheck/coatcheck/segment"
)

// What many have written first. Both work until something happens at the wrong moment.
const (
	readMax  = "SELECT max_id FROM leaf_alloc WHERE biz_tag = ?"
	writeMax = "UPDATE leaf_alloc SET max_id = ? WHERE biz_tag = ?"
)

// unlocked reads max_id, and then writes it: two who do so at once read the same.
type unlocked struct{ db *sql.DB }

// Take implements segment.Source.
func (u unlocked) Take(ctx context.Context, tag string, _ int64) (segment.Range, error) {
	var lo int64
	if err := u.db.QueryRowContext(ctx, readMax, tag).Scan(&lo); err != nil {
		return segment.Range{}, err
	}
	time.Sleep(time.Millisecond) // what the way to a database takes elsewhere
	if _, err := u.db.ExecContext(ctx, writeMax, lo+step, tag); err != nil {
		return segment.Range{}, err
	}
	return segment.Range{Lo: lo, Hi: lo + step, Step: step}, nil
}

// late remembers the range that it is handing out, and the one after it, and writes down those
// that are done. When it is killed, they are forgotten.
type late struct {
	db *sql.DB

	mu   sync.Mutex
	next map[string]int64
}

// Take implements segment.Source.
func (l *late) Take(ctx context.Context, tag string, _ int64) (segment.Range, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	lo, known := l.next[tag]
	if known {
		if _, err := l.db.ExecContext(ctx, writeMax, lo-step, tag); err != nil {
			return segment.Range{}, err
		}
	} else if err := l.db.QueryRowContext(ctx, readMax, tag).Scan(&lo); err != nil {
		return segment.Range{}, err
	}
	l.next[tag] = lo + step
	return segment.Range{Lo: lo, Hi: lo + step, Step: step}, nil
}
