package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/coatcheck/coatcheck/counter"
	"github.com/coatcheck/coatcheck/idempotency"
	"github.com/coatcheck/coatcheck/limit"
	"github.com/coatcheck/coatcheck/lock"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/scripts"
	"github.com/coatcheck/coatcheck/segment/redissource"
	"github.com/coatcheck/coatcheck/workerlease"
)

// The acts that are measured.
const (
	claimAct     = "claim, own key"
	extendAct    = "extend"
	completeAct  = "complete, 200 bytes"
	replayAct    = "replay"
	issueAct     = "issue"
	claimIssued  = "claim, issued token"
	settleAct    = "settle"
	enterAct     = "lock"
	renewLock    = "renew a lock"
	leaveAct     = "release"
	handOverAct  = "release, hand over"
	acquireAct   = "lease a worker id, 1,024 slots"
	renewFewAct  = "renew a worker id, 1,024 slots"
	renewMostAct = "renew a worker id, 1,048,576 slots"
	openAct      = "open a counter"
	incrAct      = "increment with a request id"
	segmentAct   = "range of ids"
	limitAct     = "rate limit"
)

// act is a call of a user that runs a script in Redis, many times.
type act struct {
	what   string // "" = it only leads to the next act
	script *scripts.Script
	word   string // the first of each reply
	call   func(ctx context.Context, i int) error
	bare   bare                            // without a text: there is none
	after  func(ctx context.Context) error // checks what the replies do not show

	given bool // the arguments have what Redis gave in the act before, such as a fence

	recorded, bareCalls []scriptCall
	start               dump // what was there before; only if given
}

// story is acts of which each goes on where the one before ended. A call that is nil is one that
// the act before has made as well: each call of a user then runs two scripts.
type story struct {
	acts  []act
	close func() error

	redis    *redisServer
	stays    bool     // Redis keeps what is there, and the acts can be repeated on it
	steady   bool     // the memory does not grow
	start    dump     // what is there at first
	channels []string // on which a process of the story listens
	// makes what the bare scripts find; may be nil
	bareFilled func(ctx context.Context) error
}

// stage is where stories are recorded.
type stage struct {
	redis    *redisServer
	recorder *recorder
	store    *redisstore.Store
	n        int
}

// stories are all of those on a server that they may empty.
var stories = []func(ctx context.Context, s *stage) (*story, error){
	ownKeys, issuedTokens, settlements, ownLocksStory, handOvers, acquisitions, countersStory, segmentsStory, limitsStory,
}

// requestOf is what a middleware says of a request.
func requestOf(i int) idempotency.ClaimOptions {
	options := terms
	options.Route, options.RequestID = "POST /orders", fmt.Sprintf("018f6f2e-7c1a-7d3b-9f10-%012d", i)
	return options
}

var answerOfBytes = idempotency.Answer{
	Status: http.StatusCreated, Header: http.Header{"Content-Type": {"application/json"}},
	Body: []byte(strings.Repeat("a", answerSize)),
}

// tokenCalls are the operations of a story.
type tokenCalls struct {
	tokens *idempotency.Tokens
	keys   []idempotency.Key
	owners []string
}

func newTokenCalls(ctx context.Context, s *stage) (*tokenCalls, error) {
	c := &tokenCalls{tokens: idempotency.New(s.store, idempotency.Config{}), keys: make([]idempotency.Key, s.n),
		owners: make([]string, s.n)}
	for i := range c.keys {
		c.keys[i] = idempotency.Key{Principal: "customer-4711", ID: fmt.Sprintf("order-%09d", i)}
	}
	return c, s.store.Ping(ctx)
}

func (c *tokenCalls) end() error { return c.tokens.Close(context.Background()) }

func (c *tokenCalls) issue(ctx context.Context, i int) error {
	token, err := c.tokens.Issue(ctx, "customer-4711", "", 0)
	c.keys[i] = idempotency.IssuedToken("customer-4711", token.Value)
	return err
}

func (c *tokenCalls) claim(ctx context.Context, i int) error {
	outcome, err := c.tokens.Claim(ctx, c.keys[i], requestOf(i))
	c.owners[i] = outcome.Grant.LeaseToken
	if err == nil && !outcome.Granted {
		err = errors.New("a first claim is not granted")
	}
	return err
}

func (c *tokenCalls) extend(ctx context.Context, i int) error {
	_, err := c.tokens.Extend(ctx, c.keys[i], c.owners[i], 0)
	return err
}

func (c *tokenCalls) complete(ctx context.Context, i int) error {
	return c.tokens.Complete(ctx, c.keys[i], c.owners[i], answerOfBytes)
}

func (c *tokenCalls) replay(ctx context.Context, i int) error {
	outcome, err := c.tokens.Claim(ctx, c.keys[i], requestOf(i))
	if err == nil && outcome.Granted {
		err = errors.New("a repeat is granted")
	}
	return err
}

func (c *tokenCalls) abandon(ctx context.Context, i int) error {
	return c.tokens.Abandon(ctx, c.keys[i], c.owners[i])
}

func (c *tokenCalls) settle(ctx context.Context, i int) error {
	settlement := idempotency.Settlement{Decision: idempotency.DecisionHappened, Answer: answerOfBytes}
	return c.tokens.Settle(ctx, c.keys[i].Operation(), settlement)
}

func ownKeys(ctx context.Context, s *stage) (*story, error) {
	c, err := newTokenCalls(ctx, s)
	return &story{close: c.end, acts: []act{
		{what: claimAct, script: scripts.TokenClaim, word: "granted", call: c.claim, bare: bareClaim},
		{what: extendAct, script: scripts.TokenExtend, word: "ok", call: c.extend, bare: bareExtend},
		{what: completeAct, script: scripts.TokenComplete, word: "ok", call: c.complete, bare: bareComplete},
		{what: replayAct, script: scripts.TokenClaim, word: "replay", call: c.replay, bare: bareReplay},
	}}, err
}

func issuedTokens(ctx context.Context, s *stage) (*story, error) {
	c, err := newTokenCalls(ctx, s)
	return &story{close: c.end, acts: []act{
		{what: issueAct, script: scripts.TokenIssue, word: "ok", call: c.issue, bare: bareIssue},
		{what: claimIssued, script: scripts.TokenClaim, word: "granted", call: c.claim, bare: bareClaim},
	}}, err
}

func settlements(ctx context.Context, s *stage) (*story, error) {
	c, err := newTokenCalls(ctx, s)
	return &story{close: c.end, acts: []act{
		{script: scripts.TokenClaim, word: "granted", call: c.claim, bare: bareClaim},
		{script: scripts.TokenExtend, word: "ok", call: c.abandon},
		{what: settleAct, script: scripts.OperationSettle, word: "ok", call: c.settle, bare: bareSettle},
	}}, err
}

// lockCalls are the locks of a story.
type lockCalls struct {
	locks  *lock.Locks
	grants []lock.Grant
}

func newLockCalls(store *redisstore.Store, n int) *lockCalls {
	return &lockCalls{lock.New(store, lock.Config{Owner: "billing-7f9c:4711", Window: time.Minute}), make([]lock.Grant, n)}
}

func lockName(i int) string { return fmt.Sprintf("lock-%06d", i) }

func (c *lockCalls) enter(ctx context.Context, i int) (err error) {
	c.grants[i], err = c.locks.TryGrant(ctx, lockName(i), lock.Request{TTL: time.Hour})
	return err
}

func (c *lockCalls) renew(ctx context.Context, i int) (err error) {
	c.grants[i], err = c.locks.Renew(ctx, c.grants[i])
	return err
}

func (c *lockCalls) release(ctx context.Context, i int) error {
	return c.locks.Release(ctx, c.grants[i])
}

// wait takes a place in the queue of a lock, and keeps it.
func (c *lockCalls) wait(ctx context.Context, i int) error {
	_, err := c.locks.Grant(ctx, lockName(i), lock.Request{TTL: time.Hour, Token: secretOf(), KeepPlace: true, Wait: time.Millisecond})
	if errors.Is(err, lock.ErrHeld) {
		return nil
	}
	return errors.Join(err, errors.New("want a wait for the lock in vain"))
}

func ownLocksStory(_ context.Context, s *stage) (*story, error) {
	c := newLockCalls(s.store, s.n)
	return &story{close: c.locks.Close, acts: []act{
		{what: enterAct, script: scripts.LockEnter, word: "granted", call: c.enter, bare: bareEnter},
		{what: renewLock, script: scripts.LockRenew, word: "ok", given: true, call: c.renew, bare: bareRenewLock},
		{what: leaveAct, script: scripts.LockLeave, word: "free", call: c.release, bare: bareLeave},
	}}, nil
}

// handOvers are locks for which another process waits.
func handOvers(ctx context.Context, s *stage) (*story, error) {
	other, err := s.recorder.open(s.redis)
	if err != nil {
		return nil, err
	}
	c, waiting := newLockCalls(s.store, s.n), newLockCalls(other, 0)
	told := &story{close: func() error { return errors.Join(c.locks.Close(), waiting.locks.Close(), other.Close()) }}
	told.acts = []act{
		{script: scripts.LockEnter, word: "granted", call: c.enter, bare: bareEnter},
		{script: scripts.LockEnter, call: waiting.wait, bare: bareWait},
		{what: handOverAct, script: scripts.LockLeave, word: "free", call: c.release, bare: bareHandOver, after: func(ctx context.Context) error {
			return told.heldAgain(ctx)
		}},
	}
	return told, ctx.Err()
}

// heldAgain checks that each lock has another holder.
func (s *story) heldAgain(ctx context.Context) error {
	for part := range slices.Chunk(s.acts[2].recorded, pipelined) {
		var names []string
		for _, call := range part {
			names = append(names, call.key())
		}
		if held, err := s.redis.Exists(ctx, names...).Result(); err != nil || held != int64(len(names)) {
			return errors.Join(err, fmt.Errorf("%d of %d locks have a new holder", held, len(names)))
		}
	}
	return nil
}

// newRing is a ring of slots that are all known to Redis, of which some are free.
func newRing(ctx context.Context, s *stage, width int) (*ring, error) {
	r := &ring{redis: s.redis, pools: workerlease.New(s.store, workerlease.Config{NewPools: workerlease.NewPoolsTrust}),
		name: fmt.Sprintf("ring-%d", width), slots: 1 << width, leases: make([]workerlease.Lease, s.n)}
	return r, r.fill(ctx, s.store)
}

func acquisitions(ctx context.Context, s *stage) (*story, error) {
	s.n = min(s.n, turnsOfSlots)
	r, err := newRing(ctx, s, 10)
	filled := func(ctx context.Context) error { return s.redis.fillBareRing(ctx, ofRing, r.slots) }
	return &story{steady: true, bareFilled: filled, acts: []act{
		{what: acquireAct, script: scripts.WorkerAcquire, word: "granted", call: r.acquire, bare: bareAcquire},
	}}, err
}

// renewals are those of worker ids in a ring, which stay leased.
func renewals(ctx context.Context, s *stage, what string, width int) (*story, error) {
	s.n = min(s.n, turnsOfSlots)
	r, err := newRing(ctx, s, width)
	if err == nil {
		err = forEach(ctx, func(i int) error { return r.acquire(ctx, i) }, s.n)
	}
	if err == nil {
		err = s.redis.fillBareRing(ctx, ringOf(r.slots), r.slots)
	}
	return &story{stays: true, steady: true, acts: []act{
		{what: what, script: scripts.WorkerRenew, word: "ok", call: r.renew, bare: bareRenew(r.slots)},
	}}, err
}

func countersStory(ctx context.Context, s *stage) (*story, error) {
	counters := counter.New(s.store, counter.Config{})
	_, err := counters.Incr(ctx, "first")
	return &story{close: counters.Close, acts: []act{
		{what: openAct, script: scripts.CounterOpen, word: "ok", bare: bareOpen, call: func(ctx context.Context, i int) error {
			_, err := counters.Add(ctx, fmt.Sprintf("orders-%06d", i), counter.Request{RequestID: fmt.Sprintf("request-%09d", i)})
			return err
		}},
		{what: incrAct, script: scripts.CounterIncr, word: "ok", bare: bareIncrOnce},
	}}, err
}

func segmentsStory(ctx context.Context, s *stage) (*story, error) {
	source := redissource.New(s.store, redissource.Config{})
	_, err := source.Take(ctx, "first", 0)
	return &story{close: source.Close, acts: []act{
		{script: scripts.CounterOpen, word: "ok", bare: bareOpen, call: func(ctx context.Context, i int) error {
			tag := fmt.Sprintf("orders-%06d", i)
			source.HoldAt(tag, 1_000_000_000)
			_, err := source.Take(ctx, tag, 0)
			return err
		}},
		{what: segmentAct, script: scripts.CounterIncr, word: "ok", bare: bareSegment},
	}}, err
}

func limitsStory(ctx context.Context, s *stage) (*story, error) {
	limits := limit.New(s.store, limit.Config{})
	return &story{close: limits.Close, acts: []act{
		{what: limitAct, script: scripts.LimitTake, word: "ok", bare: bareLimit, call: func(ctx context.Context, i int) error {
			_, err := limits.Take(ctx, fmt.Sprintf("caller-%06d", i), limit.Rate{N: limit.MaxN, Per: time.Second}, 1)
			return err
		}},
	}}, ctx.Err()
}
