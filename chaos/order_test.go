//go:build check

package chaos

import (
	"net/http"
	"sync"
)

// order is an operation that clients want done, once.
type order struct {
	*operation

	header string   // how it is known: by a token or a key
	doors  []*front // where its clients ask, in turn

	mu     sync.Mutex
	key    string
	state  position
	ready  chan struct{} // closed when key is there
	inTurn bool          // its token is issued while the fault may strike
}

// position is how far an order's first request has come, as far as one can see from outside. The
// process that answers it knows more.
type position int

// The positions, in their order.
const (
	unsent position = iota // no client has asked yet
	// asked: the claim is not sent, under way, or made, and the handler has not begun
	claiming
	beginning // the handler has begun and had no effect
	acting    // the effect is there, and the handler goes on
	// the handler has ended: its answer is unrecorded, being recorded, or recorded and on its way.
	recording
	answered // a client has the answer
	positions
)

func (p position) String() string {
	return [...]string{
		unsent: "before it was asked", claiming: "before the handler", beginning: "in the handler, before the effect", acting: "in the handler, after the effect",
		recording: "after the handler", answered: "after the answer",
	}[p]
}

func (o *order) value() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.key
}

func (o *order) asked() { o.reach(claiming) }

func (o *order) heard(a answer) {
	if a.status == http.StatusCreated {
		o.reach(answered)
	}
}

// came notes a step of the handler.
func (o *order) came(at step) {
	o.reach(map[step]position{begun: beginning, effected: acting, ended: recording}[at])
}

func (o *order) reach(p position) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.state = max(o.state, p)
}

func (o *order) position() position {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.state
}
