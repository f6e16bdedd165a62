package segment

import (
	"context"
	"errors"
	"iter"
	"sync/atomic"

	"github.com/coatcheck/coatcheck/internal/step"
)

// Tag is the handle of one tag, for callers that draw many ids of it. It is safe for concurrent
// use, and stays valid when the tag was dropped: the next call fetches again.
type Tag struct {
	// head is where ids are drawn from: the chain's current node, or one that is used up.
	head     atomic.Pointer[node]
	chain    atomic.Pointer[chain]
	segments *Segments
	name     string
}

// Name is the tag's name.
func (t *Tag) Name() string { return t.name }

// Next draws an id. It waits only where no range is ready; ctx only ends the wait.
//
// The errors: the Source's answer, if this call waited for it; [ErrStarved] with the context's
// cause; [ErrWentBack], [ErrBadRange], [ErrTooManyTags], [ErrClosed].
func (t *Tag) Next(ctx context.Context) (int64, error) {
	return t.head.Load().next(ctx, t, (*Tag).slowly)
}

// slowly ends a draw of the position p that is not a plain one.
func (t *Tag) slowly(ctx context.Context, n *node, p int64) (int64, error) {
	step.At("segment: drew at the mark or after it")
	for p > 0 {
		var err error
		if n, err = t.following(ctx, n); err != nil {
			return 0, err
		}
		step.At("segment: has the next range")
		p = atomic.AddInt64(&n.pos, 1)
	}
	t.prefetch(n, p)
	return n.id(p), nil
}

// Fill draws as many ids as there is room for, in rising order as far as the source's ranges rise.
// After an error none of them counts, and drawn ones are lost. It waits and fails as Next.
func (t *Tag) Fill(ctx context.Context, ids []int64) error {
	for len(ids) > 0 {
		n := t.head.Load()
		step.At("segment: has the current range")
		p, got := n.draw(int64(len(ids)))
		if got == 0 {
			if _, err := t.following(ctx, n); err != nil {
				return err
			}
			continue
		}
		n.write(ids[:got], p)
		t.prefetch(n, p+got-1)
		ids = ids[got:]
	}
	return nil
}

// All yields ids, each drawn when asked for, until the consumer breaks off or a last error.
func (t *Tag) All(ctx context.Context) iter.Seq2[int64, error] {
	return func(yield func(int64, error) bool) {
		for {
			id, err := t.Next(ctx)
			if !yield(id, err) || err != nil {
				return
			}
		}
	}
}

// prefetch fetches the next range if the position p that was drawn is at the mark or after it.
func (t *Tag) prefetch(n *node, p int64) {
	if n.atMark(p) {
		step.At("segment: passed the mark")
		t.chain.Load().marked(n)
	}
}

// following finds the node after one that is used up, nil for the first, and waits for it.
func (t *Tag) following(ctx context.Context, n *node) (*node, error) {
	next, err := t.chain.Load().nextNode(ctx, n)
	for errors.Is(err, errGone) {
		var c *chain
		if c, err = t.segments.open(ctx, t.name); err != nil {
			return nil, err
		}
		step.At("segment: opened the tag")
		t.chain.Store(c)
		next, err = c.nextNode(ctx, n)
	}
	if err != nil {
		return nil, err
	}
	step.At("segment: found the next range")
	t.head.Store(next)
	return next, nil
}
