package pipeline

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/coatcheck/coatcheck/internal/fault"
)

// trip is one round trip to a server: commands, then the question for what they depend on, then
// WAIT where they ask for acknowledgement.
type trip struct {
	engine *Engine
	ctx    context.Context //nolint:containedctx // it ends with the round trip
	pipe   redis.Pipeliner
	node   *redis.Client
	server *server
	ack    int  // of the call
	want   int  // replicas that WAIT waits for
	byAll  bool // which are all that can become master

	info  *replication // what the server said of itself; nil: it was not asked, or did not answer
	asked bool
	fault error // why what it said is not known to others
}

func (s *Engine) trip(ctx context.Context, pipe redis.Pipeliner, node *redis.Client, ack int) trip {
	t := trip{engine: s, ctx: ctx, pipe: pipe, node: node, server: s.facts.of(node), ack: ack, want: ack}
	if ack == AckAll {
		if t.server.isOld() { // calls that wait for others' trips go out without being asked
			_ = s.begin(ctx, node, t.server)
		}
		t.want = s.ack // a number that was asked for as well holds too
	}
	t.byAll = t.server.replicas.confirmedBy(ack)
	if t.byAll {
		t.want = max(t.want, t.server.replicas.toCount())
	}
	return t
}

func (t *trip) add(asking bool, commands ...redis.Cmder) {
	for _, command := range commands {
		if asking {
			t.pipe.Do(t.ctx, "asking")
		}
		_ = t.pipe.Process(t.ctx, command) // it only takes the command in
	}
}

// exec sends the commands. Each has its own error; that of the acknowledgement is returned.
func (t *trip) exec(depends bool) error {
	var info, after *redis.StringCmd
	t.asked = depends && t.engine.restarts != Trust || t.ack == AckAll
	if t.asked {
		t.engine.refresh(t.node, t.server)
		info = askReplication(t.ctx)
		t.add(false, info)
	}
	var wait *redis.Cmd
	if t.want > 0 {
		wait = t.pipe.Do(t.ctx, "wait", t.want, ackPatience(t.ctx, t.engine.ackTimeout).Milliseconds())
	}
	if t.want > 0 && t.asked && t.byAll {
		after = askReplication(t.ctx)
		t.add(false, after)
	}
	_, err := t.pipe.Exec(t.ctx)
	if wait != nil {
		err = acknowledged(wait, t.want, err)
	} else {
		err = nil // each command has its own
	}
	if info != nil {
		t.read(info, after, err == nil)
	}
	err = cmp.Or(err, t.missed())
	if t.byAll {
		t.server.short.Store(err != nil)
	}
	return err
}

// read takes in what the server said of itself, also after WAIT where it was asked then, and
// whether as many as were waited for confirmed: one of them may have come meanwhile, in the place
// of one that lags.
func (t *trip) read(info, after *redis.StringCmd, confirmed bool) {
	found, ok := readReplication(info)
	if !ok {
		return
	}
	t.info = &found
	another := t.server.saw(found)
	if after != nil {
		found, ok := readReplication(after)
		if !ok {
			t.info = nil
			return
		}
		another = t.server.saw(found) || another
	}
	if another {
		t.engine.observers.incarnationChanged()
	} else if t.byAll && confirmed {
		t.server.replicas.counted(t.want)
	}
	// What was known is of the one before. A replica that has come is noted before this answers, so
	// that a process which starts while it is away knows of it.
	if another || t.ack == AckAll && t.server.replicas.unheld() {
		_, t.fault = t.engine.learn(t.ctx, t.node, t.server)
	}
}

// missed is the error of a write that all replicas had to confirm, where there is one more than was
// known. The next write waits for it as well.
func (t *trip) missed() error {
	switch {
	case !t.byAll || !t.asked:
		return nil
	case t.info == nil:
		return errors.New("written, but the server did not show its replicas")
	case t.fault != nil:
		return fmt.Errorf("written, but which replicas it has is not known: %w", t.fault)
	}
	if all := t.server.replicas.toCount(); all > t.want {
		return &ShortfallError{Want: all, Got: t.want}
	}
	return nil
}

// judge gives an INCRBY its standing.
func (c *call) judge(read *redis.StringCmd, t *trip) {
	if t.asked && t.info == nil {
		c.standing = gone // it may be any
		return
	}
	info := t.info
	if t.engine.restarts == Trust {
		info = nil
	}
	c.standing, c.id = c.marker.judge(read, info, t.ack, t.server), t.id()
}

// id is the incarnation that has answered, "" if that is not known.
func (t *trip) id() string {
	if t.info == nil {
		return ""
	}
	return t.info.id
}

// acknowledged judges the answer to WAIT. An error of its own is only quoted, so that no caller
// takes it for an answer to the script, which has run.
func acknowledged(wait *redis.Cmd, want int, execErr error) error {
	got, err := wait.Int()
	switch cause := errors.Join(err, execErr); {
	case err != nil && fault.TimedOut(cause):
		return fmt.Errorf("written, but the acknowledgement failed: %s (%w)", cause.Error(), context.DeadlineExceeded)
	case err != nil:
		return errors.New("written, but the acknowledgement failed: " + cause.Error())
	}
	if got < want {
		return &ShortfallError{Want: want, Got: got}
	}
	return nil
}
