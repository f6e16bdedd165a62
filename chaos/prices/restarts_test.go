//go:build nightly

package prices

import (
	"context"
	"errors"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/chaos/internal/chaostest"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
)

// scene is a Redis and a service on it.
type scene struct {
	t       *testing.T
	program string
	redis   *redistest.Server
	flags   []string // of the service
	service *service
	ended   time.Time // of the last service that was stopped
}

// start starts a service on the scene's Redis.
func (s *scene) start() { s.startAs(name) }

func (s *scene) startAs(identity string) {
	s.service = serve(s.t, s.program, append([]string{"--redis", s.redis.URL(), "--identity", identity}, s.flags...)...)
}

// stop ends the service in order.
func (s *scene) stop() {
	s.service.Finish()
	s.ended = time.Now()
}

// again stops the service and starts it anew.
func (s *scene) again() {
	s.stop()
	s.start()
}

// restartBoth restarts Redis while no service runs.
func (s *scene) restartBoth() {
	s.stop()
	s.redis.Restart()
	s.start()
}

// restart is a row of the table of restarts and losses.
type restart struct {
	name   string
	redis  bool // Redis ends in it, so that its persistence matters
	quick  bool // it is measured beside other tests, too
	fresh  bool // nothing was there before
	idle   bool // the service has stamped nothing with its lease
	trust  bool // the service trusts restarts, which needs appendfsync always
	strike func(s *scene)

	// sinceEnd counts from the end of the old process, since the wait does so, and a slow start of
	// the new one would hide it. The least of several tries is the one with the quickest start.
	sinceEnd bool
}

// away is how long Redis and the service stay away in one row: longer than every window that can be
// open.
const away = 45 * time.Second

var restarts = []restart{
	{name: "the service restarts in order", quick: true, strike: (*scene).again},
	{name: "the service is killed, and starts again", strike: func(s *scene) {
		s.service.Kill()
		s.start()
	}},
	{name: "the service restarts in order, and had stamped nothing (from its end)", quick: true, idle: true, sinceEnd: true, strike: (*scene).again},
	{name: "a fresh Redis", fresh: true, strike: func(*scene) {}},
	{name: "FLUSHALL", strike: func(s *scene) { chaostest.Do(s.t, s.redis, "FLUSHALL") }},
	{name: "Redis restarts in order, the service goes on", redis: true, strike: func(s *scene) { s.redis.Restart() }},
	{name: "Redis is killed, and starts again, the service goes on", redis: true, strike: func(s *scene) {
		s.redis.Kill()
		s.redis.Restart()
	}},
	{name: "Redis is killed, and starts again, the service goes on, `--restarts trust`", redis: true, trust: true, strike: func(s *scene) {
		s.redis.Kill()
		s.redis.Restart()
	}},
	{name: "Redis and the service restart in order, at once", redis: true, strike: (*scene).restartBoth},
	{name: "Redis and the service restart in order, at once, `--restarts trust`", redis: true, trust: true, quick: true, strike: (*scene).restartBoth},
	{name: "Redis and the service stop in order, and start 45 s later", redis: true, strike: func(s *scene) {
		s.stop()
		s.redis.Stop()
		time.Sleep(away)
		s.redis.Restart()
		s.start()
	}},
	{name: "Redis restarts in order, and then a rolling deploy", redis: true, strike: func(s *scene) {
		s.redis.Restart()
		until(s.t, "the old service counts again", time.Now(), func(ctx context.Context) error {
			_, err := s.service.count(ctx)
			return err
		})
		old := s.service
		s.startAs("another-host")
		until(s.t, "the new service is ready", time.Now(), s.service.ready)
		old.Finish()
	}},
}

// commandRows are measured by the command, with these flags, and have no service.
var commandRows = []struct {
	name  string
	flags []string
}{
	{"`worker run --identity` again (from its end)", nil},
	{"`worker run --identity --stamps-ahead 0s` again (from its end)", []string{"--stamps-ahead", "0s"}},
}

// tries are how often a row is measured that counts from the end of a process.
const tries = 3

// Every row is measured at the same time as all others, since nearly all of it is waiting.
func TestPricesOfRestarts(t *testing.T) {
	beside(t)
	wanted, program := chaostest.Wanted(t), measured(t)
	var figures figures
	t.Run("rows", func(t *testing.T) {
		for _, row := range restarts {
			for _, fsync := range []string{"everysec", "always"} {
				if (!*all && !row.quick) || !wanted(row.name) || (fsync == "always" && !row.redis) || (fsync == "everysec" && row.trust) {
					continue
				}
				t.Run(row.name+", "+fsync, func(t *testing.T) {
					t.Parallel()
					note(t, &figures, &figures.Restarts, row.least(t, program, fsync))
				})
			}
		}
		for _, row := range commandRows {
			if (*all || *chaostest.Faults != "") && wanted(row.name) {
				t.Run(row.name, func(t *testing.T) {
					t.Parallel()
					note(t, &figures, &figures.Restarts, figure{Row: row.name, ID: new(measureCommand(t, program, row.flags).Milliseconds())})
				})
			}
		}
	})
	figures.publish(t, "restarts", figures.restartTable)
}

// least measures a row, as often as that helps, and keeps the try with the quickest id.
func (row restart) least(t *testing.T, program, fsync string) figure {
	least := row.measure(t, program, fsync)
	for n := 1; row.sinceEnd && n < tries; n++ {
		if again := row.measure(t, program, fsync); *again.ID < *least.ID {
			least = again
		}
	}
	return least
}

// measure plays a row, and says what it came to.
func (row restart) measure(t *testing.T, program, fsync string) figure {
	s := &scene{t: t, program: program, redis: redistest.Start(t, "--appendonly", "yes", "--appendfsync", fsync)}
	if row.trust {
		s.flags = []string{"--restarts", "trust"}
	}
	if !row.fresh {
		declare(t, program, "--redis", s.redis.URL())
	}
	s.start()
	var counted, drawn int64
	if !row.fresh {
		counted, drawn = s.use(!row.idle)
	}
	row.strike(s)
	figure := figure{Row: row.name, Redis: map[bool]string{true: "appendfsync " + fsync}[row.redis]}
	from := time.Now()
	if row.sinceEnd {
		from = s.ended
	}
	first := s.next(&figure, from)
	if !row.fresh {
		figure.CounterJump = new(first.counted - counted - 1)
		figure.SegmentJump = new(first.drawn - drawn - 1)
	}
	return figure
}

// use has the service hand out all that there is, and returns the last value and the last segment's
// id.
func (s *scene) use(stamp bool) (counted, drawn int64) {
	s.t.Helper()
	until(s.t, "the service leases a worker id", time.Now(), s.service.leased)
	for range 20 {
		until(s.t, "the service works", time.Now(), func(ctx context.Context) (err error) {
			if counted, err = s.service.count(ctx); err != nil {
				return err
			}
			if drawn, err = s.service.segment(ctx); err != nil {
				return err
			}
			if stamp {
				if _, err = s.service.ids(ctx, 10); err != nil {
					return err
				}
			}
			granted, err := s.service.lock(ctx, time.Minute)
			if err != nil {
				return err
			}
			return s.service.unlock(ctx, granted)
		})
	}
	return counted, drawn
}

// firsts are what was handed out first after a fault.
type firsts struct{ counted, drawn int64 }

// asked is one thing that is asked for, and where its time goes, in milliseconds.
type asked struct {
	what string
	into **int64
	ask  func(context.Context) error
}

// askAll asks for everything at once, and notes how long each takes from a moment on.
func (s *scene) askAll(from time.Time, all []asked) {
	var group sync.WaitGroup
	for _, a := range all {
		group.Go(func() { *a.into = new(until(s.t, a.what, from, a.ask).Milliseconds()) })
	}
	group.Wait()
}

// next asks for everything that there is.
func (s *scene) next(figure *figure, from time.Time) (first firsts) {
	s.askAll(from, []asked{
		{"an id", &figure.ID, func(ctx context.Context) error { _, err := s.service.ids(ctx, 1); return err }},
		{"a value", &figure.Counter, func(ctx context.Context) (err error) { first.counted, err = s.service.count(ctx); return err }},
		{"a lock", &figure.Lock, func(ctx context.Context) error { _, err := s.service.lock(ctx, time.Minute); return err }},
		{"a segment's id", &figure.Segment, func(ctx context.Context) (err error) { first.drawn, err = s.service.segment(ctx); return err }},
	})
	return first
}

// measureCommand runs a command under a worker id again and again, each as soon as the one before
// has ended, and keeps the quickest but for the first.
func measureCommand(t *testing.T, program string, flags []string) time.Duration {
	args := slices.Concat([]string{"worker", "run", "--identity", name}, flags)
	redis := redistest.Start(t, "--appendonly", "yes")
	declare(t, program, "--redis", redis.URL())
	least := patience
	for n := range 1 + tries {
		from := time.Now()
		until(t, "the command runs", from, func(ctx context.Context) error {
			out, err := exec.CommandContext(ctx, program, append(args, "--redis", redis.URL(), name, "--", "true")...).CombinedOutput()
			if err != nil {
				return errors.Join(err, errors.New(string(out)))
			}
			return nil
		})
		if took := time.Since(from); n > 0 {
			least = min(least, took)
		}
	}
	return least
}
