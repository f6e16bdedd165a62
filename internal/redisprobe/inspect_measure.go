package redisprobe

import (
	"context"
	"crypto/sha1" //nolint:gosec // the name that Redis gives a script; it guards nothing
	"encoding/hex"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coatcheck/coatcheck/doctor"
	"github.com/coatcheck/coatcheck/internal/lazyregexp"
)

const (
	clockSamples = 9           // round trips of which the shortest tells most
	sampleLimit  = time.Second // for the samples of one latency
	reachLife    = 10 * time.Second
)

// clockScript reads the time, as every script of ours does.
const clockScript = "return redis.call('TIME')"

// infoScript asks for the incarnation, as our scripts do.
const infoScript = "return redis.call('INFO', 'replication')"

var incarnationLine = lazyregexp.New(`(?m)^master_replid:(\w*)`)

func (i *inspector) measure(ctx context.Context, node *redis.Client, s *doctor.Inspected) {
	s.Clock = clock(ctx, node)
	s.Ping = i.latency(func() error { return node.Ping(ctx).Err() })
	if err := node.Eval(ctx, clockScript, nil).Err(); err != nil {
		s.ScriptFails = err.Error()
		return
	}
	info, err := node.Eval(ctx, infoScript, nil).Text()
	switch id := incarnationLine().FindStringSubmatch(info); {
	case err != nil:
		s.NoIncarnation = "INFO in a script: " + err.Error()
	case id == nil || id[1] == "":
		s.NoIncarnation = "INFO has no master_replid"
	case strings.Trim(id[1], "0") == "":
		s.NoIncarnation = "master_replid is zeros"
	default:
		s.Incarnation = id[1]
	}
	sum := sha1.Sum([]byte(clockScript)) //nolint:gosec // as above
	sha := hex.EncodeToString(sum[:])
	s.Script = i.latency(func() error { return node.EvalSha(ctx, sha, nil).Err() })
}

// clock compares a server's clock with this host's. The server read its clock between the moment
// before the question and the one after the answer, so the shortest of several round trips bounds
// the offset best.
func clock(ctx context.Context, node *redis.Client) doctor.Clock {
	best := doctor.Clock{Err: "not asked"}
	for range clockSamples {
		before := time.Now()
		at, err := node.Time(ctx).Result()
		trip := time.Since(before) // monotonic: a step of the clock meanwhile does not shorten it
		if err != nil {
			if best.Err != "" {
				best.Err = err.Error()
			}
			continue
		}
		// TIME is cut to microseconds
		if half := trip/2 + time.Microsecond; best.Err != "" || half < best.Within {
			best = doctor.Clock{Offset: at.Sub(before.Round(0).Add(trip / 2)), Within: half}
		}
	}
	return best
}

func (i *inspector) latency(trip func() error) doctor.Latency {
	var took []time.Duration
	for end := time.Now().Add(sampleLimit); len(took) < i.options.Samples && (len(took) == 0 || time.Now().Before(end)); {
		start := time.Now()
		if trip() != nil {
			break
		}
		took = append(took, time.Since(start))
	}
	if len(took) == 0 {
		return doctor.Latency{}
	}
	slices.Sort(took)
	at := func(share float64) time.Duration { return took[min(int(share*float64(len(took))), len(took)-1)] }
	return doctor.Latency{N: len(took), P50: at(0.5), P99: at(0.99), Max: took[len(took)-1]}
}

// reach writes a key that expires, and waits for replicas on the same connection.
func (i *inspector) reach(ctx context.Context, node *redis.Client, tag string, listed int) *doctor.Reach {
	reach := &doctor.Reach{Asked: max(i.config.Ack, listed)}
	start := time.Now()
	pipe := node.Pipeline()
	write := pipe.Set(ctx, i.key(tag), strconv.FormatInt(start.UnixMilli(), 10), reachLife)
	var wait *redis.Cmd
	if reach.Asked > 0 {
		wait = pipe.Do(ctx, "wait", reach.Asked, i.config.AckTimeout.Milliseconds())
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	reach.Took = time.Since(start)
	if err := write.Err(); err != nil {
		reach.Err = strings.TrimSpace(err.Error())
	} else if wait != nil {
		if reach.Got, err = wait.Int(); err != nil {
			reach.WaitErr, _, _ = strings.Cut(err.Error(), ", with args")
		}
	}
	return reach
}
