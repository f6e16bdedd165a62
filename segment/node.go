package segment

import (
	"fmt"
	"sync/atomic"
)

// node is a range while ids are drawn from it. Its ids have positions that end at 0, wherever the range lies:
//
//	position   -count  …  -2   -1 |  0   1   2 …
//	id          Lo     …          |  none is left
//
// so that drawing one is one addition, whatever the distance of the ids, and callers who come too late have 2^63 positions to draw from before the number
// overflows. Nobody draws twice from a node that was found used up.
type node struct {
	_     [64]byte // pos is on a cache line that nobody else writes
	pos   atomic.Int64
	_     [56]byte
	limit atomic.Int64 // positions below it are drawn without a further look: mark, and 0 once that was passed
	// What does not change:
	end   int64 // the id that would stand at position 0; wraps around where that is above 2^63 - 1
	delta int64
	count int64
	mark  int64 // whoever draws this position, or a later one, sees to the next range
	hi    int64
	_     [16]byte
}

// newNode makes the node of a range that was checked. ahead is how much of it is used when the mark is met.
func newNode(r Range, ahead float64) *node {
	n := &node{delta: max(r.Delta, 1), hi: r.Hi}
	n.count = (r.Hi-r.Lo-1)/n.delta + 1
	n.end = r.Lo + n.count*n.delta
	n.mark = int64(float64(n.count)*ahead) - n.count
	n.limit.Store(n.mark)
	n.pos.Store(-n.count)
	return n
}

// empty is the node before the first range.
func empty() *node { return &node{delta: 1} }

// check tells whether ids can be drawn from a range.
func (r Range) check() error {
	if r.Lo < 0 || r.Hi <= r.Lo || r.Delta < 0 {
		return fmt.Errorf("%w: %d to %d, distance %d", ErrBadRange, r.Lo, r.Hi, r.Delta)
	}
	return nil
}

func (n *node) id(p int64) int64 { return n.end + p*n.delta }

// draw takes up to k positions: got of them, from p on.
func (n *node) draw(k int64) (p, got int64) {
	if n.pos.Load() >= 0 {
		return 0, 0
	}
	p = n.pos.Add(k) - k
	return p, min(k, max(-p, 0))
}

// write writes the ids of the positions from p on.
func (n *node) write(ids []int64, p int64) {
	id, delta := n.id(p), n.delta
	for i := range ids {
		ids[i] = id
		id += delta
	}
}

// left is how many ids are left.
func (n *node) left() int64 { return max(-n.pos.Load(), 0) }

func (n *node) used() int64 { return n.count - n.left() }

// passed tells whether the mark's position was drawn.
func (n *node) passed() bool { return n.pos.Load() > n.mark }

// last is the highest id of the range.
func (n *node) last() int64 { return n.id(-1) }

// drop takes all that is left, and tells how much that was: nobody draws an id any more.
func (n *node) drop() (lost int64) { return max(-n.pos.Swap(0), 0) }
