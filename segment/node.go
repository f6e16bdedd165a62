package segment

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/coatcheck/coatcheck/internal/step"
)

// node is a range while ids are drawn from it. Its positions end at 0, wherever the range lies:
//
//	position   1-count  …  -1    0  |  1   2 …
//	id          Lo      …      last |  none is left
//
// so that drawing one is one addition, whatever the distance of the ids, and callers that come too
// late have 2^63 positions to draw from before the number overflows. No goroutine draws twice from
// a node that it found used up.
//
// limit and pos are atomic by the functions that are called with them. With the types of
// sync/atomic, or limit elsewhere, Next would be too large for the compiler to inline.
type node struct {
	// positions below it are drawn without further checks: mark, and 1 once that was passed
	limit int64
	// What does not change:
	last  int64 // the id at position 0, the highest
	delta int64
	count int64
	mark  int64 // the goroutine that draws this position, or a later one, fetches the next range
	hi    int64
	valid context.Context // of the range, or nil
	leave func() bool     // ends the wait for the end of valid, if the range is in use
	_     [56]byte
	pos   int64 // that was drawn last; on cache lines that no other field shares
	_     [120]byte
}

// newNode makes the node of a checked range. ahead is how much of it is used up to the mark.
func newNode(r Range, ahead float64) *node {
	n := &node{delta: max(r.Delta, 1), hi: r.Hi, valid: r.Valid}
	n.count = (r.Hi-r.Lo-1)/n.delta + 1
	n.last = r.Lo + (n.count-1)*n.delta
	n.mark = int64(float64(n.count)*ahead) - n.count + 1
	n.limit, n.pos = n.mark, -n.count
	return n
}

// empty is the node before the first range.
func empty() *node { return &node{delta: 1, mark: 1} }

// check returns the fault of a range, if ids cannot be drawn from it.
func (r Range) check() error {
	if r.Lo < 0 || r.Hi <= r.Lo || r.Delta < 0 {
		return fmt.Errorf("%w: %d to %d, distance %d", ErrBadRange, r.Lo, r.Hi, r.Delta)
	}
	return nil
}

func (n *node) id(p int64) int64 { return n.last + p*n.delta }

// next takes a position, and returns its id. If further checks are needed, it calls slowly. It is a
// parameter because the compiler inlines this function only if it calls nothing else.
func (n *node) next(ctx context.Context, t *Tag, slowly func(*Tag, context.Context, *node, int64) (int64, error)) (int64, error) {
	p := atomic.AddInt64(&n.pos, 1)
	if p >= atomic.LoadInt64(&n.limit) {
		return slowly(t, ctx, n, p)
	}
	return n.last + p*n.delta, nil
}

// draw takes up to k positions: got of them, from p on.
func (n *node) draw(k int64) (p, got int64) {
	if n.left() == 0 {
		return 0, 0
	}
	step.At("segment: some ids are left")
	before := atomic.AddInt64(&n.pos, k) - k
	return before + 1, min(k, max(-before, 0))
}

// atMark reports whether a drawn position p is at or after a mark that is not handled yet.
func (n *node) atMark(p int64) bool { return p >= atomic.LoadInt64(&n.limit) }

// seen marks the mark as handled: from now on all positions are drawn without further checks.
func (n *node) seen() { atomic.StoreInt64(&n.limit, 1) }

// write writes the ids of the positions from p on.
func (n *node) write(ids []int64, p int64) {
	id, delta := n.id(p), n.delta
	for i := range ids {
		ids[i] = id
		id += delta
	}
}

// left is how many ids are left.
func (n *node) left() int64 { return max(-atomic.LoadInt64(&n.pos), 0) }

func (n *node) used() int64 { return n.count - n.left() }

// passed reports whether the mark's position was drawn.
func (n *node) passed() bool { return atomic.LoadInt64(&n.pos) >= n.mark }

// use has the rest of the range dropped as soon as the range is not valid any more, until the node
// is used up.
func (n *node) use() {
	if n.valid != nil {
		n.leave = context.AfterFunc(n.valid, func() { n.drop() })
	}
}

// end is for a node that nobody draws from any more.
func (n *node) end() {
	if n.leave != nil {
		n.leave()
	}
}

// drop takes all remaining ids, and returns how many: no id is drawn any more.
func (n *node) drop() (lost int64) { return max(-atomic.SwapInt64(&n.pos, 0), 0) }
