package pipeline

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

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
	ack    int // of the call
	want   int // replicas that WAIT waits for
	until  time.Time

	info  *replication // what the server said of itself; nil: it was not asked, or cannot be used
	epoch string       // of its configuration, in a cluster
	asked bool
}

func (s *Engine) trip(ctx context.Context, pipe redis.Pipeliner, node *redis.Client, ack int) trip {
	t := trip{engine: s, ctx: ctx, pipe: pipe, node: node, server: s.facts.of(node), ack: ack, want: ack}
	if ack == AckAll {
		if t.server.isOld() { // calls that wait for others' trips go out without being asked
			_ = s.begin(ctx, node, t.server)
		}
		t.want = max(t.server.places.others(), s.ack) // the store may ask for a number as well
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
	var info, epoch, after *redis.StringCmd
	t.asked = depends && t.engine.restarts != Trust || t.ack == AckAll
	if t.asked {
		t.engine.refresh(t.node, t.server)
		info = askReplication(t.ctx)
		t.add(false, info)
	}
	if t.asked && depends && t.engine.facts.set == inCluster {
		epoch = redis.NewStringCmd(t.ctx, "cluster", "info")
		t.add(false, epoch)
	}
	var wait *redis.Cmd
	if t.want > 0 {
		patience := ackPatience(t.ctx, t.engine.ackTimeout)
		t.until = time.Now().Add(patience)
		wait = t.pipe.Do(t.ctx, "wait", t.want, patience.Milliseconds())
	}
	if t.ack == AckAll {
		after = askReplication(t.ctx)
		t.add(false, after)
	}
	_, err := t.pipe.Exec(t.ctx)
	if wait != nil && t.ack != AckAll {
		err = acknowledged(wait, t.want, err)
	} else if t.ack != AckAll {
		err = nil // each command has its own
	}
	if info != nil {
		t.read(info, epoch)
	}
	if t.ack == AckAll {
		err = t.confirmed(after, err)
		t.server.short.Store(err != nil)
	}
	return err
}

// read takes in what the server said of itself. It may be another server than before.
func (t *trip) read(info, epoch *redis.StringCmd) {
	found, ok := readReplication(info)
	if !ok || !found.master {
		return
	}
	t.info = &found
	if epoch != nil {
		t.epoch = infoField(epoch.Val(), "cluster_my_epoch")
	}
	t.engine.saw(t.server, found.id)
	last := t.server.id.Load()
	if last == nil || *last != found.id || t.ack == AckAll && t.server.places.attach(found.links) {
		t.server.asked.Store(0)
		if t.ack == AckAll { // a replica that has come is noted before this answers
			_ = t.engine.begin(t.ctx, t.node, t.server)
		}
	}
}

// tellAgain is how long a server is given to ask its replicas again what they have.
const tellAgain = 5 * time.Millisecond

// confirmed waits until every place has the history up to what INFO showed after the commands. WAIT
// decides nothing: it also counts links that cannot become master, and does not say which.
func (t *trip) confirmed(after *redis.StringCmd, sent error) error {
	if t.info == nil {
		if fault.TimedOut(sent) {
			return fmt.Errorf("written, but the acknowledgement failed: %s (%w)", sent.Error(), context.DeadlineExceeded)
		}
		return errors.New("written, but the server did not show its replicas")
	}
	for {
		found, ok := readReplication(after)
		if !ok || found.id != t.info.id || !found.master {
			return errors.New("written, but the server did not show which replicas have it")
		}
		got, missing := t.server.places.confirmed(found.links, t.info.offset)
		if len(missing) == 0 && got >= t.engine.ack {
			return nil
		}
		left := time.Until(t.until)
		if left <= 0 || t.want == 0 || t.ctx.Err() != nil {
			slices.Sort(missing)
			return &ShortfallError{Want: max(t.server.places.others(), t.engine.ack), Got: got, Missing: strings.Join(missing, "; ")}
		}
		pipe := t.node.Pipeline()
		pipe.Do(t.ctx, "wait", len(found.links)+1, max(min(left, tellAgain).Milliseconds(), 1))
		after = askReplication(t.ctx)
		_ = pipe.Process(t.ctx, after)
		_, _ = pipe.Exec(t.ctx) // each command has its own error
	}
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
	c.standing, c.id = c.marker.judge(read, t, info), t.id()
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
