package lock

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/bsm/redislock"

	"github.com/coatcheck/coatcheck/internal/lazyregexp"
	"github.com/coatcheck/coatcheck/internal/names"
	"github.com/coatcheck/coatcheck/internal/notifier"
	"github.com/coatcheck/coatcheck/internal/onstore"
	"github.com/coatcheck/coatcheck/internal/pipeline"
	"github.com/coatcheck/coatcheck/internal/secret"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/scripts"
)

// Defaults of a [Config].
const (
	defaultWindow = time.Second
	defaultSkew   = time.Second
)

// AfterLoss is what to do once Redis may have lost leases that are still open: after a failover, a
// restart without the last data, or FLUSHALL.
type AfterLoss string

// The choices after a loss.
const (
	// AfterLossGrant goes on at once. A holder whose lease was lost learns of it at its next
	// renewal, a third of its TTL later at most; until then another may hold as well. The default:
	// with an acknowledgement of all replicas that can become master a failover loses nothing,
	// every resource that checks fences is safe in any case, and a service does not stop for half a
	// minute whenever Redis is restarted.
	AfterLossGrant AfterLoss = "grant"
	// AfterLossWait grants nothing until every lease that may be open has ended: LongestTTL + Skew.
	// Also before the very first lock of a Redis, since one that is new and one that has lost
	// everything look alike. Costs one INFO for each new grant.
	AfterLossWait AfterLoss = "wait"
)

// Config is the configuration of a store's locks. The zero value of each field means its default.
type Config struct {
	Owner string // names a holder for people, as [Request].Owner; "" = host:pid
	// Window is the claim window: how long a waiter whose turn has come may take to ask for the
	// lock, before it goes to the next, in whole milliseconds, MinTTL to a minute; 0 = 1 s. Waiters
	// also poll about as often, and every five seconds at least.
	Window time.Duration
	// Margin is how long before the lease's end the context ends; 0 = TTL/10, a second at most.
	Margin    time.Duration
	AfterLoss AfterLoss // "" = AfterLossGrant
	// LongestTTL is the longest TTL that may be asked for. Under AfterLossWait it must be the same
	// for all users of a store; 0 = DefaultTTL under AfterLossWait, else MaxTTL.
	LongestTTL time.Duration
	// Skew is how far the clocks of two servers that can be master may differ, up to a minute;
	// under AfterLossWait only; 0 = 1 s.
	Skew   time.Duration
	Logger *slog.Logger // nil = slog.Default(). It never sees a token
}

func (c Config) withDefaults() Config {
	if c.Owner == "" {
		c.Owner = process()
	}
	c.Window = cmp.Or(c.Window, defaultWindow)
	c.AfterLoss = cmp.Or(c.AfterLoss, AfterLossGrant)
	if c.LongestTTL == 0 {
		c.LongestTTL = MaxTTL
		if c.AfterLoss == AfterLossWait {
			c.LongestTTL = DefaultTTL
		}
	}
	c.Skew = cmp.Or(c.Skew, defaultSkew)
	c.Logger = cmp.Or(c.Logger, slog.Default())
	return c
}

var notInNames = lazyregexp.New(`[^A-Za-z0-9._:~@-]`)

// process names this process for people.
func process() string {
	host, err := os.Hostname()
	if err != nil || host == "" || len(host) > 150 {
		host = "process"
	}
	return fmt.Sprintf("%s:%d", notInNames().ReplaceAllString(host, "-"), os.Getpid())
}

// Check returns the first fault of a configuration, with the bound that it breaks.
func (c Config) Check() error {
	c = c.withDefaults()
	switch {
	case !names.Valid(c.Owner):
		return fmt.Errorf("lock: owner: up to 200 characters of A–Z a–z 0–9 . _ : ~ @ -")
	case c.Window < MinTTL || c.Window > time.Minute:
		return fmt.Errorf("lock: window %v: %v to 1m", c.Window, MinTTL)
	case c.Margin < 0:
		return fmt.Errorf("lock: margin %v is negative", c.Margin)
	case c.AfterLoss != AfterLossGrant && c.AfterLoss != AfterLossWait:
		return fmt.Errorf("lock: after a loss %q: grant or wait", c.AfterLoss)
	case c.LongestTTL < MinTTL || c.LongestTTL > MaxTTL:
		return fmt.Errorf("lock: longest ttl %v: %v to %v", c.LongestTTL, MinTTL, MaxTTL)
	case c.Skew < time.Millisecond || c.Skew > time.Minute:
		return fmt.Errorf("lock: skew %v: 1ms to 1m", c.Skew)
	}
	return nil
}

// Locks are the locks of one store. It is safe for concurrent use. Close it once none is in use.
//
// # Queue
//
// A release writes the lock in the name of the next waiter and publishes one message to its
// process, with the fence. The next waiter has a claim window ([Config].Window) to ask for its
// grant. In [Locks.Acquire] it begins at once, and asks if it still has the lock after 20 ms. Until
// it has an answer it counts on the window alone, less a tenth, from when it sent the poll that the
// message names, which Redis answered before the handover. If Redis does not answer, it loses the
// lock that much sooner. It asks first if half of that time is over already, if replicas are to
// confirm its grant (redisstore.Config.Ack), if [Config].Margin is more than a tenth of the window,
// or if [Request].WholeTTL is set.
//
// If the next waiter is in the same process there is no message and no claim: the reply to the
// release has its grant, with a fence of its own, counted from before the release was sent.
//
// Waiters also poll, when the holder's lease can end and about once in a window, and any poll
// advances the queue: a lost message, or a process that died in the queue, delays a waiter by a
// window at most. Waiters whose process does not answer are passed over, and have their places
// again if they poll within two minutes.
//
// # A gate within the process
//
// Of the goroutines that want one exclusive lock by Acquire, one at a time asks Redis, in the order
// in which they came; the next one asks when it has its answer. So a process has one place in the
// queue, and its goroutines cannot keep those of others waiting for longer by being many. Requests
// with a Token, other modes, candidates ([Locks.Campaign]) and grants as values ([Locks.Grant]) ask
// at once. While Redis does not answer, all ask.
type Locks struct {
	store    *redisstore.Store
	config   Config
	log      *slog.Logger
	client   *redislock.Client
	notifier *notifier.Notifier[notification]
	inbox    string // the channel of its waiters
	gates    gates
	left     leftovers
	polls    atomic.Int64 // that were sent

	outage   time.Duration // how long a wait goes on while Redis does not answer
	settings string        // arguments of all scripts, see scripts/lib/lock_grant.lua
}

// New returns the locks of a store. It panics without a store, and if [Config.Check] returns an
// error.
func New(store *redisstore.Store, config Config) *Locks {
	if store == nil {
		panic("lock: New needs a store: see redisstore.Open")
	}
	config = config.withDefaults()
	if err := config.Check(); err != nil {
		panic(err)
	}
	config.Window = whole(config.Window)
	l := &Locks{store: store, config: config, log: config.Logger, client: redislock.New(pipeline.Of(store).Scripter())}
	l.outage = placeKept
	l.inbox = onstore.Key(store, "locks", "inbox", secret.New())
	l.notifier = notifier.New(store, l.inbox, l.log, parseNotification)
	l.settings = fmt.Sprintf("%d %d %s %d", placeKept.Milliseconds(), config.Window.Milliseconds(), l.counts(), l.holdOff())
	return l
}

// Close ends the subscription of this process's waiters. Release held locks first: it keeps them.
// What a hung Redis grants late is not given back any more.
func (l *Locks) Close() error {
	l.notifier.Close()
	if n := l.left.close(); n > 0 {
		l.log.Warn(notWithdrawn, "requests", n)
	}
	return nil
}

// Key is the Redis key of a lock, as github.com/bsm/redislock takes it: its plain clients on that
// key and ours exclude each other.
func (l *Locks) Key(name string) string { return onstore.Key(l.store, "lock", name) }

// keys are the keys of one lock, in the order in which the scripts take them. They are slices of
// one string, since each lock needs them twice.
func (l *Locks) keys(name string) []string {
	key := l.Key(name)
	all := key + key + ":fence" + key + ":queue" + key + ":waiters" + key + ":holders"
	keys := make([]string, 0, 6)
	for _, side := range []string{"", ":fence", ":queue", ":waiters", ":holders"} {
		n := len(key) + len(side)
		keys, all = append(keys, all[:n]), all[n:]
	}
	if l.config.AfterLoss == AfterLossWait {
		keys = append(keys, onstore.SlotKey(l.store, "locks", "marker", name))
	}
	return keys
}

// holdOff is how long nothing is granted after a loss, in milliseconds.
func (l *Locks) holdOff() int64 {
	if l.config.AfterLoss == AfterLossGrant {
		return 0
	}
	return (l.config.LongestTTL + l.config.Skew).Milliseconds()
}

// counts is "1" if PUBLISH returns how many listen. In a cluster it counts one node's subscribers.
func (l *Locks) counts() string {
	if l.store.Mode() == redisstore.ModeCluster {
		return "0"
	}
	return "1"
}

// run runs a script on a lock.
func (l *Locks) run(ctx context.Context, script *scripts.Script, keys []string, args ...any) (scripts.Reply, error) {
	return onstore.Run(ctx, l.store, script, keys, args...)
}
