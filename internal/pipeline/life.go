package pipeline

import (
	"context"
	"errors"
	"regexp"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/coatcheck/coatcheck/internal/fault"
	"github.com/coatcheck/coatcheck/scripts"
)

// Life names the incarnation that this process's connections to one server belong to. Each
// connection asks for the server's incarnation before it is used, and one that finds another than
// those before it begins a new life. So a call that finds the same life before it is sent and after
// its reply has spoken to that incarnation, and pays nothing for knowing it. FLUSHALL begins no
// incarnation, so no life tells of it. Lives are comparable.
//
// It rests on this: a server that is no master any more, or another one that has taken its address,
// has ended its connections. Sentinel and a cluster see to the first.
type Life struct {
	node   *redis.Client
	of     *lives
	n      uint64
	asking bool // the key is on its way there
}

// Current reports whether the life goes on, as far as this process knows. The zero Life has never
// begun.
func (l Life) Current() bool { return l.of != nil && l.n > 0 && l.of.n.Load() == l.n }

// ErrOtherLife is the refusal of a call that was meant for a life that is over, or for a server
// that the key is no longer at.
var ErrOtherLife = fault.Refusal("another incarnation of the server")

// RunFor is [Engine.Run], and tells the life in which the script ran: not a current one if that
// ended meanwhile.
func (s *Engine) RunFor(ctx context.Context, script *scripts.Script, keys []string, args ...any) ([]string, Life, error) {
	trip := s.trip(script, keys, args, nil)
	trip.call.inLife = true
	defer s.ended(trip)
	reply, err := s.run(ctx, keys[0], trip)
	life := trip.call.life
	if trip.call.abandoned || trip.call.untold {
		return reply, Life{}, err
	}
	if life.n == 0 && life.of != nil {
		life.n = 1 // it was the first to connect
	}
	return reply, life, err
}

// lives counts the incarnations that one client's connections have spoken to.
type lives struct {
	n         atomic.Uint64 // 0 = no connection yet
	observers observers

	// inBand is for a client of the caller's, whose connections do not ask: each round trip with a
	// call that depends on the incarnation asks for it, with its last command (asked), and the
	// calls of one that was answered by another incarnation than the one before are of no current
	// life.
	inBand bool

	mu    sync.Mutex
	id    string
	ended bool
}

var incarnationLine = regexp.MustCompile(`(?m)^master_replid:([0-9a-f]+)\r?$`)

// onConnect asks a new connection which incarnation it speaks to. All servers that do not say it
// count as one.
func (l *lives) onConnect(ctx context.Context, conn *redis.Conn) error {
	return l.told(conn.Info(ctx, "replication"))
}

// asked is the question of a round trip.
func asked(ctx context.Context) *redis.StringCmd {
	return redis.NewStringCmd(ctx, "info", "replication")
}

// told takes the answer to the question. The error says that there is none.
func (l *lives) told(answer *redis.StringCmd) error {
	text, err := answer.Result()
	if reply := redis.Error(nil); err != nil && !errors.As(err, &reply) {
		return err
	}
	id := ""
	if found := incarnationLine.FindStringSubmatch(text); found != nil {
		id = found[1]
	}
	if l.speaksTo(id) {
		l.observers.lifeBegan()
	}
	return nil
}

// end makes all lives past, those that would still begin as well.
func (l *lives) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	l.n.Add(1)
}

// speaksTo notes the incarnation of a new connection or of a round trip, and reports whether it is
// another than that of those before.
func (l *lives) speaksTo(id string) (another bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	begun := l.n.Load() > 0
	if !begun || id != l.id || l.ended {
		another = begun && !l.ended
		l.id = id
		l.n.Add(1)
	}
	return another
}
