//go:build check && linux

package servers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/chaos/internal/chaostest"
	"github.com/coatcheck/coatcheck/client"
	"github.com/coatcheck/coatcheck/snowflake"
)

const (
	counterName = "orders"
	lockName    = "report"
	poolName    = "pool"
	rest        = 4 * time.Millisecond // between two calls of a client
)

// load is clients that use all that the services have, and what they were told.
type load struct {
	t       *testing.T
	ctx     context.Context // ends with the load
	stop    context.CancelFunc
	clients sync.WaitGroup

	mu     sync.Mutex
	used   []*inUse
	values []increment
	held   []held
	ids    []snowflake.ID
	tokens []*token
	asked  map[string]int            // calls, by what they ask for
	did    map[string]int            // those that succeeded
	failed map[string]map[string]int // the others, by their codes
	class  map[string]map[error]int  // and by their classes
	odd    []error                   // errors of no class, or of two
}

// inUse is a service that the load uses.
type inUse struct {
	*client.Client
	stop    context.CancelFunc
	clients sync.WaitGroup
}

// increment is a value that a client got, and when its call began and returned.
type increment struct {
	value           int64
	begun, returned time.Time
}

// held is a grant of the lock, asked for at begun: the client believed in it at first and at last.
type held struct {
	fence              int64
	begun, first, last time.Time
}

// token is a token, and what became of the functions under it.
type token struct {
	value   string
	asked   time.Time // for it
	runs    int
	answers map[string]int // that callers got
}

// startLoad starts clients of the services, and returns when each kind gets something done.
func startLoad(t *testing.T, services ...*client.Client) *load {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	l := &load{
		t: t, ctx: ctx, stop: stop, asked: map[string]int{}, did: map[string]int{},
		failed: map[string]map[string]int{}, class: map[string]map[error]int{},
	}
	t.Cleanup(l.end)
	for _, service := range services {
		l.join(service)
	}
	l.clients.Go(func() { l.repeat(ctx, func() { l.pay(ctx, l.services()) }) })
	l.goesOn()
	return l
}

// join starts clients of a service.
func (l *load) join(service *client.Client) {
	ctx, stop := context.WithCancel(l.ctx)
	u := &inUse{Client: service, stop: stop}
	for range 2 {
		u.clients.Go(func() { l.repeat(ctx, func() { l.count(ctx, service) }) })
	}
	u.clients.Go(func() { l.repeat(ctx, func() { l.lock(ctx, service) }) })
	u.clients.Go(func() { l.stamp(ctx, service) })
	l.clients.Go(u.clients.Wait)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.used = append(l.used, u)
}

// leave ends the clients of a service, but for a call under a token that may be under way.
func (l *load) leave(service *client.Client) {
	l.mu.Lock()
	i := slices.IndexFunc(l.used, func(u *inUse) bool { return u.Client == service })
	left := l.used[i]
	l.used = slices.Delete(slices.Clone(l.used), i, i+1)
	l.mu.Unlock()
	left.stop()
	left.clients.Wait()
}

func (l *load) services() (all []*client.Client) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, u := range l.used {
		all = append(all, u.Client)
	}
	return all
}

func (l *load) repeat(ctx context.Context, turn func()) {
	for ctx.Err() == nil {
		turn()
		time.Sleep(rest)
	}
}

// end has all clients end.
func (l *load) end() {
	l.stop()
	l.clients.Wait()
}

var kinds = []string{"count", "lock", "stamp", "pay"}

// goesOn waits until every kind of client, or each of those, gets something done, by itself.
func (l *load) goesOn(those ...string) {
	l.t.Helper()
	if len(those) == 0 {
		those = kinds
	}
	before := l.done()
	chaostest.Await(l.t, time.Minute, func() string {
		now := l.done()
		for _, kind := range those {
			if now[kind] < before[kind]+5 {
				return fmt.Sprintf("%s gets nothing done: %v, %v", kind, now, l)
			}
		}
		return ""
	})
}

func (l *load) done() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.did)
}

// refusals waits until calls of a kind have been refused, that many more.
func (l *load) refusals(kind string, n int) {
	l.t.Helper()
	before := l.refused(kind)
	chaostest.Await(l.t, time.Minute, func() string {
		if got := l.refused(kind) - before; got < n {
			return fmt.Sprintf("%d calls of kind %s were refused, want %d: %v", got, kind, n, l)
		}
		return ""
	})
}

func (l *load) refused(kind string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.class[kind][client.ErrRefused]
}

var classes = []error{client.ErrRefused, client.ErrLost, client.ErrUnknownOutcome}

// note notes what became of a call. It reports whether it succeeded.
func (l *load) note(ctx context.Context, kind string, err error) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked[kind]++
	if err == nil {
		l.did[kind]++
		return true
	}
	var of []error
	for _, class := range classes {
		if errors.Is(err, class) {
			of = append(of, class)
		}
	}
	if len(of) != 1 && ctx.Err() == nil {
		l.odd = append(l.odd, fmt.Errorf("%s: %d classes: %w", kind, len(of), err))
	}
	code := "no answer"
	if e, is := errors.AsType[*client.Error](err); is && e.Code != "" {
		code = e.Code
	}
	if l.failed[kind] == nil {
		l.failed[kind], l.class[kind] = map[string]int{}, map[error]int{}
	}
	l.failed[kind][code]++
	for _, class := range of {
		l.class[kind][class]++
	}
	return false
}

func (l *load) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return fmt.Sprintf("did %v, failed %v", l.did, l.failed)
}

func (l *load) count(ctx context.Context, service *client.Client) {
	begun := time.Now()
	value, err := service.Incr(ctx, counterName)
	returned := time.Now()
	if l.note(ctx, "count", err) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.values = append(l.values, increment{value, begun, returned})
	}
}

func (l *load) lock(ctx context.Context, service *client.Client) {
	begun := time.Now()
	got, err := service.AcquireLock(ctx, lockName, client.LockRequest{TTL: ttl, Wait: time.Second})
	if !l.note(ctx, "lock", err) {
		return
	}
	h := held{fence: got.Fence(), begun: begun, first: time.Now()}
	time.Sleep(3 * rest)
	if at := time.Now(); got.Err() == nil {
		h.last = at
	}
	l.mu.Lock()
	l.held = append(l.held, h)
	l.mu.Unlock()
	l.note(ctx, "release", got.Release(ctx))
}

// stamp holds a worker id, another one whenever it is lost, and stamps with it.
func (l *load) stamp(ctx context.Context, service *client.Client) {
	var holder *client.Holder
	for ctx.Err() == nil && holder == nil {
		var err error
		if holder, err = service.HoldWorker(ctx, poolName, client.WorkerRequest{TTL: ttl}, client.HoldOptions{}); err != nil {
			time.Sleep(10 * rest)
		}
	}
	if holder == nil {
		return
	}
	generator, err := snowflake.New(holder, snowflake.Config{})
	if err != nil {
		l.t.Errorf("a generator of ids: %v", err)
		return
	}
	l.repeat(ctx, func() {
		short, cancel := context.WithTimeout(ctx, ttl)
		defer cancel()
		stamped, err := generator.NextN(short, 20)
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.ids = append(l.ids, stamped...); err == nil {
			l.did["stamp"]++
		}
	})
	_ = holder.Release(context.WithoutCancel(ctx), generator.Stop()) // it ends by itself
}

// stock is how many tokens are issued and not used yet.
const stock = 20

// pay issues a token, and has each service's client run a function at once under one that was
// issued a while ago.
func (l *load) pay(ctx context.Context, services []*client.Client) {
	asked := time.Now()
	issued, err := services[0].Issue(ctx, "", time.Hour)
	if !l.note(ctx, "issue", err) {
		return
	}
	one := &token{value: issued.Value, asked: asked, answers: map[string]int{}}
	l.mu.Lock()
	l.tokens = append(l.tokens, one)
	one = l.tokens[max(0, len(l.tokens)-stock)]
	l.mu.Unlock()
	var both sync.WaitGroup
	for _, service := range services {
		both.Go(func() { l.use(ctx, "pay", service, one) })
	}
	both.Wait()
}

// use runs a function under a token, or gets the answer of another run.
func (l *load) use(ctx context.Context, kind string, service *client.Client, one *token) {
	result, err := service.Do(ctx, one.value, client.ClaimOptions{Lease: ttl}, func(context.Context, *client.Attempt) ([]byte, error) {
		l.mu.Lock()
		defer l.mu.Unlock()
		one.runs++
		return []byte("run " + strconv.Itoa(one.runs)), nil
	})
	if errors.Is(err, client.ErrNotRecorded) { // its function ran, and its answer is right
		l.note(ctx, kind+": record", err)
		err = nil
	}
	if l.note(ctx, kind, err) {
		l.mu.Lock()
		defer l.mu.Unlock()
		one.answers[string(result.Value)]++
	}
}

// workers are the worker ids of all ids that were stamped.
func (l *load) workers() map[snowflake.ID]bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	used := map[snowflake.ID]bool{}
	for _, id := range l.ids {
		used[id>>12&(1<<10-1)] = true // as snowflake.DefaultLayout writes it
	}
	return used
}
