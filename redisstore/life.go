package redisstore

import (
	"context"
	"errors"
	"regexp"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

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
var ErrOtherLife = Refusal("another incarnation of the server")

// RunFor is [Store.Run], and tells the life in which the script ran: not a current one if that
// ended meanwhile.
func (s *Store) RunFor(ctx context.Context, script *scripts.Script, keys []string, args ...any) (Reply, Life, error) {
	trip := s.trip(script, keys, args, nil)
	defer s.ended(trip)
	reply, err := s.run(ctx, keys[0], trip)
	life := trip.call.life
	if life.n == 0 && life.of != nil {
		life.n = 1 // it was the first to connect
	}
	return reply, life, err
}

// lives counts the incarnations behind one client's connections.
type lives struct {
	n         atomic.Uint64 // 0 = no connection yet
	observers observers

	mu sync.Mutex
	id string
}

var incarnationLine = regexp.MustCompile(`(?m)^master_replid:([0-9a-f]+)\r?$`)

// onConnect asks a new connection which incarnation it speaks to. All servers that do not say it
// count as one.
func (l *lives) onConnect(ctx context.Context, conn *redis.Conn) error {
	text, err := conn.Info(ctx, "replication").Result()
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

// speaksTo notes the incarnation of a new connection, and reports whether it is another than that
// of those before.
func (l *lives) speaksTo(id string) (another bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	begun := l.n.Load() > 0
	if !begun || id != l.id {
		another = begun
		l.id = id
		l.n.Add(1)
	}
	return another
}
