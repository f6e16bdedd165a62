package idempotency

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/coatcheck/coatcheck/internal/onstore"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/scripts"
)

// watched is how long Redis is asked after it has answered that there is no claim to give back.
// Requests to a hung Redis may run out of order.
const watched = 15 * time.Second

// giveBack releases a claim whose outcome is not known and whose handler never ran. While Redis
// does not answer it is retried: under PolicyHold for as long as the record stays, since a claim
// that a hung Redis runs late would be in doubt for that long; under PolicyTakeover until the next
// request can take the claim over.
func (t *Tokens) giveBack(key Key, owner string, options ClaimOptions) {
	until := t.stays(options)
	var missing time.Time // since when Redis answers that there is no such claim
	size := len(key.record) + len(key.token) + len(key.ID) + len(key.Principal) + len(owner)
	given := t.claims.add(&job{name: key.record, size: size, until: until, try: func(ctx context.Context) bool {
		switch word, err := t.release(ctx, key, owner); {
		case err != nil:
			return !uncertain(err)
		case word != "stale" && word != "gone":
			t.confirmRelease(key, owner, options)
			return true
		}
		if missing.IsZero() {
			missing = time.Now()
		}
		return time.Since(missing) >= watched || t.claims.isShut()
	}})
	if !given {
		t.claims.drop()
	}
}

// stays is until when a claim can be of harm that nothing was started for.
func (t *Tokens) stays(options ClaimOptions) time.Time {
	if options.Policy == PolicyHold {
		return time.Now().Add(t.keepOpen)
	}
	return time.Now().Add(2 * options.Lease)
}

// confirmRelease is for a claim that was given back at the master. A replica may have the claim
// alone, and become master: so it is given back again until the replicas that had to confirm the
// claim confirm that it is gone. There is no room for any number of these while a replica is away.
func (t *Tokens) confirmRelease(key Key, owner string, options ClaimOptions) {
	if cmp.Or(options.Ack, t.store.Ack()) == 0 {
		return
	}
	size := len(key.record) + len(key.token) + len(key.ID) + len(key.Principal) + len(owner)
	t.released.add(&job{name: key.record, size: size, until: t.stays(options), try: func(ctx context.Context) bool {
		_, err := onstore.Run(ctx, t.on(options.Ack), scripts.TokenRelease, t.keys(key), owner, t.done)
		return err == nil || !uncertain(err)
	}})
}

// release gives a claim back without waiting for replicas, which [Tokens.confirmRelease] does. It
// returns the script's answer.
func (t *Tokens) release(ctx context.Context, key Key, owner string) (word string, err error) {
	reply, err := onstore.Run(ctx, t.store.WithAck(0), scripts.TokenRelease, t.keys(key), owner, t.done)
	if err != nil {
		return "", err
	}
	return reply.Word(), nil
}

// uncertain reports whether trying again may help.
func uncertain(err error) bool {
	return errors.Is(err, redisstore.ErrUnavailable) || errors.Is(err, redisstore.ErrUnknownOutcome)
}

// completeLater retries to record an answer that the client already has. If there is no room for
// it, the answer is recorded without its body, which is better than a token in doubt. An attempt
// that says meanwhile that it is in doubt is.
func (t *Tokens) completeLater(
	ctx context.Context, key Key, owner string, answer Answer, attempt *Attempt,
) {
	if t.addAnswer(key, owner, answer, attempt) {
		t.log.WarnContext(ctx, "idempotency: an answer could not be recorded yet; it is sent, and recording goes on")
		return
	}
	if !answer.NotKept && t.addAnswer(key, owner, Answer{Status: answer.Status, Header: answer.Header, NotKept: true}, attempt) {
		t.log.ErrorContext(ctx, "idempotency: too many answers could not be recorded; this one is sent, and recording goes on without its body")
		return
	}
	t.answers.drop()
}

func (t *Tokens) addAnswer(key Key, owner string, answer Answer, attempt *Attempt) bool {
	size, until := answer.size()+len(owner), time.Now().Add(t.keepOpen)
	return t.answers.add(&job{name: key.record, size: size, until: until, try: func(ctx context.Context) bool {
		err := t.Complete(ctx, key, owner, answer)
		if attempt.inDoubt.Load() {
			err = t.Abandon(ctx, key, owner)
		}
		return !uncertain(err)
	}})
}

// size is about how many bytes an answer holds.
func (a Answer) size() int {
	size := len(a.Body)
	for name, values := range a.Header {
		size += len(name)
		for _, value := range values {
			size += len(value)
		}
	}
	return size
}

// Backlog is the background work of one kind.
type Backlog struct {
	Kind       string // answer or claim
	Operations int    // that it is about
	Bytes      int    // that it holds
	Dropped    int64  // jobs that were given up since the start: their tokens may be in doubt
}

// Backlogs returns what waits to be recorded and what waits to be given back.
func (t *Tokens) Backlogs() (answers, claims Backlog) {
	return t.answers.show("answer"), t.claims.show("claim")
}

func (b *backlog) show(kind string) Backlog {
	b.mu.Lock()
	defer b.mu.Unlock()
	return Backlog{kind, len(b.names), b.bytes, b.dropped}
}
