package pipeline

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/coatcheck/coatcheck/internal/fault"
	"github.com/coatcheck/coatcheck/scripts"
)

// Generation names the incarnation that this process's connections to one server belong to. Each
// connection asks for the server's incarnation before it is used, and one that finds another than
// those before it begins a new generation. So a call that finds the same generation before it is
// sent and after its reply has spoken to that incarnation, at no cost. FLUSHALL begins no
// incarnation, and so no generation. Generations are comparable.
//
// It rests on this: a server that is no master any more, or another one that has taken its address,
// has ended its connections. Sentinel and a cluster see to the first.
type Generation struct {
	node   *redis.Client
	of     *generations
	n      uint64
	asking bool // the key is on its way there
}

// Current reports whether the generation goes on, as far as this process knows. The zero Generation
// has never begun.
func (g Generation) Current() bool { return g.of != nil && g.n > 0 && g.of.n.Load() == g.n }

// ErrOtherGeneration is the refusal of a call that was meant for a generation that is over, or for
// a server that the key is no longer at.
var ErrOtherGeneration = fault.Refusal("another incarnation of the server")

// RunFor is [Engine.Run], and returns the generation in which the script ran: not a current one if
// that ended meanwhile.
func (s *Engine) RunFor(ctx context.Context, script *scripts.Script, keys []string, args ...any) ([]string, Generation, error) {
	request := s.request(script, keys, args, nil)
	request.call.inGeneration = true
	defer s.ended(request)
	reply, err := s.run(ctx, keys[0], request)
	generation := request.call.generation
	if request.call.abandoned || request.call.untold {
		return reply, Generation{}, err
	}
	if generation.n == 0 && generation.of != nil {
		generation.n = 1 // it was the first to connect
	}
	return reply, generation, err
}

// generations counts the incarnations that one client's connections have spoken to.
type generations struct {
	n         atomic.Uint64 // 0 = no connection yet
	observers observers

	// inBand is for a client of the caller's, whose connections do not ask: each round trip with a
	// call that depends on the incarnation asks for it, with its last command (asked), and the
	// calls of one that was answered by another incarnation than the one before are of no current
	// generation.
	inBand bool

	mu    sync.Mutex
	id    string
	ended bool
}

var incarnationLine = regexp.MustCompile(`(?m)^master_replid:([0-9a-f]+)\r?$`)

// onConnect asks a new connection for its incarnation. All servers without an answer count as one.
func (g *generations) onConnect(ctx context.Context, conn *redis.Conn) error {
	return g.told(conn.Info(ctx, "replication"))
}

// onConnectInSet is onConnect for a client of a Sentinel set. go-redis calls it for connections to
// sentinels as well: they have no part in replication, and so answer without a role.
func (g *generations) onConnectInSet(ctx context.Context, conn *redis.Conn) error {
	answer := conn.Info(ctx, "replication")
	if text, err := answer.Result(); err == nil && !strings.Contains(text, "role:") {
		return nil
	}
	return g.told(answer)
}

// asked is the command that asks for it, in a round trip.
func asked(ctx context.Context) *redis.StringCmd {
	return redis.NewStringCmd(ctx, "info", "replication")
}

// told reads its answer. The error means that there is none.
func (g *generations) told(answer *redis.StringCmd) error {
	text, err := answer.Result()
	if reply := redis.Error(nil); err != nil && !errors.As(err, &reply) {
		return err
	}
	id := ""
	if found := incarnationLine.FindStringSubmatch(text); found != nil {
		id = found[1]
	}
	if g.speaksTo(id) {
		g.observers.incarnationChanged()
	}
	return nil
}

// end makes all generations past, those that would still begin as well.
func (g *generations) end() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ended = true
	g.n.Add(1)
}

// speaksTo notes the incarnation of a new connection or of a round trip, and reports whether it is
// another than that of those before.
func (g *generations) speaksTo(id string) (another bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	begun := g.n.Load() > 0
	if !begun || id != g.id || g.ended {
		another = begun && !g.ended
		g.id = id
		g.n.Add(1)
	}
	return another
}
