//go:build check

package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/pflag"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/client"
	"github.com/coatcheck/coatcheck/cmd/coatcheck/internal/config"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/server"
)

// nightly is a line of a crontab: a key, and when cron starts it.
type nightly struct {
	key, zone string
	starts    func(wall time.Time) bool // by the machine's clock, each quarter of an hour
	periods   int                       // in which it starts
	days      int                       // that are lived through; 0 = a year
}

// at is a line that starts at an hour and a minute.
func at(hour, minute int) func(time.Time) bool {
	return func(wall time.Time) bool { return wall.Hour() == hour && wall.Minute() == minute }
}

// cron calls start at each moment at which cron starts a line: at each quarter of an hour of the
// machine's clock. As Debian's does, it starts what falls into a skipped hour right after it, and
// what falls into a repeated one once, unless the line is one of every quarter.
func (n *nightly) cron(from, until time.Time, start func(time.Time)) {
	seen := map[string]bool{}
	quarters := n.days > 0
	last := from.Add(-15 * time.Minute)
	for now := from; now.Before(until); now = now.Add(15 * time.Minute) {
		_, was := last.Zone()
		_, is := now.Zone()
		for skipped := time.Duration(0); skipped < time.Duration(is-was)*time.Second; skipped += 15 * time.Minute {
			wall := time.Date(now.Year(), now.Month(), now.Day(), last.Hour(), last.Minute()+15, 0, 0, time.UTC).Add(skipped)
			if !quarters && n.starts(wall) {
				start(now)
			}
		}
		wall := now.Format("2006-01-02 15:04")
		if n.starts(now) && (quarters || !seen[wall]) {
			start(now)
		}
		if seen[wall] = true; len(seen) > 200 {
			clear(seen)
		}
		last = now
	}
}

// A year of nights on three nodes whose clocks differ by a quarter of a minute, with the crontab
// line of the page, a leap day, both changes of the clock, and a Redis that is away at some of the
// minutes: each period of each line runs once or is reported, and a good night sends no mail. With
// -short it is one of four cities.
func TestAYearOfNights(t *testing.T) {
	t.Parallel()
	always := func(time.Time) bool { return true }
	flags := pageLine(t)
	// The first call must not be in a bubble.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGUSR2)
	cities := []string{"Europe/Berlin", "America/New_York", "Australia/Sydney", "UTC"}
	if testing.Short() {
		cities = cities[rand.N(len(cities)):][:1]
	}
	for _, city := range cities {
		for _, line := range []nightly{
			{"nightly:{yyyyMMdd}", city, at(3, 0), 366, 0},
			{"early:{yyyyMMdd}", city, at(2, 30), 366, 0}, // is skipped, and repeated
			{"close:{yyyy-MM}", city, at(4, 0), 13, 0},
			{"week:{YYYY-Www}", city, at(5, 0), 53, 0},
			{"year:{yyyy}", city, at(3, 0), 2, 0},
			{"quarter:{yyyyMMddHHmm}", "UTC", always, 3 * 96, 3},
		} {
			t.Run(city+" "+line.key, func(t *testing.T) {
				t.Parallel()
				zone, err := time.LoadLocation(city)
				expect.NoError(t, "the zone", err)
				synctest.Test(t, func(t *testing.T) { (&nights{T: t, nightly: line}).live(zone, flags) })
			})
		}
	}
}

// pageLine is what the crontab line of the page says after the key, without the address of Redis.
func pageLine(t *testing.T) []string {
	t.Helper()
	page, err := os.ReadFile("../../../../docs/once.md")
	expect.NoError(t, "read the page", err)
	line := regexp.MustCompile(`(?m)^0 3 \* \* \* .*coatcheck once nightly:\{yyyyMMdd\} (.*) --redis \S+ -- `).FindSubmatch(page)
	if line == nil {
		t.Fatal("the page has no line for a crontab")
	}
	return strings.Fields(string(line[1]))
}

// nights are three nodes with one Redis, which live through the starts of a line.
type nights struct {
	*testing.T
	nightly

	redis  farRedis
	random *rand.Rand

	mu   sync.Mutex
	runs map[string]int
	mail []string // of all nodes since the line started last
}

// fault is a time in which Redis is away, from when on after a start.
type fault struct {
	begins, lasts time.Duration
	reported      bool // somebody has mail
}

// faults of a night. What is shorter than --wait is waited for; the end of a job is kept for half a
// minute.
var faults = []fault{
	{-2 * time.Second, 4 * time.Second, false},
	{-2 * time.Second, 5 * time.Minute, false},
	{-2 * time.Second, 15 * time.Minute, true},
	{10 * time.Second, 15 * time.Second, false},
	{10 * time.Second, 5 * time.Minute, true},
}

const jobTakes = 20 * time.Second

func (n *nights) live(zone *time.Location, flags []string) {
	n.random, n.runs = rand.New(rand.NewPCG(1, 2)), map[string]int{}
	n.redis.open(n.T)
	from := time.Date(2000, 1, 5, 0, 0, 0, 0, zone) // the bubble's clock begins in a leap year
	until := from.AddDate(1, 0, 0)
	if n.days > 0 { // the clock changes on the second
		from = time.Date(2000, 3, 25, 0, 0, 0, 0, time.UTC).In(zone)
		until = from.Add(time.Duration(n.days) * 24 * time.Hour)
	}
	reported, bad := 0, 0
	n.cron(from, until, func(moment time.Time) {
		away := fault{}
		if n.days == 0 && n.random.IntN(6) == 0 {
			away = faults[n.random.IntN(len(faults))]
			bad++
		}
		before := len(n.runs)
		n.night(moment, away, flags)
		ran := len(n.runs) > before
		switch {
		case len(n.mail) > 0 && !away.reported:
			n.Errorf("%v, Redis away %+v: there was mail: %q", moment, away, n.mail)
		case away.reported && n.periods >= 366 && len(n.mail) == 0:
			n.Errorf("%v, Redis away %+v: there was no mail, and it ran: %v", moment, away, ran)
		}
		if away.reported {
			reported++
		}
	})
	for key, times := range n.runs {
		if times != 1 {
			n.Errorf("%s ran %d times", key, times)
		}
	}
	if missed := n.periods - len(n.runs); missed < 0 || missed > reported {
		n.Errorf("it ran in %d periods of %d, and %d nights were reported", len(n.runs), n.periods, reported)
	}
	n.Logf("%d periods, %d runs, Redis away in %d nights, %d of them reported", n.periods, len(n.runs), bad, reported)
}

// night has the three nodes start the line.
func (n *nights) night(moment time.Time, away fault, flags []string) {
	n.mail = nil
	time.Sleep(time.Until(moment.Add(-5 * time.Second)))
	var nodes sync.WaitGroup
	if away.lasts > 0 {
		nodes.Go(func() {
			time.Sleep(time.Until(moment.Add(away.begins)))
			n.redis.away.Store(true)
			time.Sleep(away.lasts)
			n.redis.away.Store(false)
		})
	}
	for node := range 3 {
		nodes.Go(func() {
			late := time.Duration(node) * 15 * time.Second // is its clock
			time.Sleep(time.Until(moment.Add(late)))
			if mail := n.start(flags); mail != "" {
				n.mu.Lock()
				defer n.mu.Unlock()
				n.mail = append(n.mail, mail)
			}
		})
	}
	nodes.Wait()
}

// start is the line on one node. It returns what cron would mail.
func (n *nights) start(flags []string) (mail string) {
	var written bytes.Buffer
	p := &program{getenv: func(string) string { return "" }, stdout: &written, stderr: &written}
	r := &once{commandRun: p.commandRun(), again: " --redis redis://redis:6379"}
	said, line := &config.Sources{}, pflag.NewFlagSet("once", pflag.ContinueOnError)
	said.Bind(line, r.settings(), nil)
	expect.NoError(n, "the flags", line.Parse(append(flags, "--zone", n.zone)))
	expect.NoError(n, "the settings", said.Load(line, p.getenv))
	r.job = func() (int, error) {
		n.mu.Lock()
		n.runs[r.key.Key]++
		n.mu.Unlock()
		time.Sleep(jobTakes)
		return 0, nil
	}
	transport := &handlerTransport{handler: &n.redis}
	service, err := client.New(client.Config{URL: "http://localhost", HTTPClient: &http.Client{Transport: transport}})
	expect.NoError(n, "the client", err)
	err = r.start(context.Background(), p, service, []string{n.key, "true"})
	transport.running.Wait()
	if exit, silent := errors.AsType[exitError](err); !silent || exit.code != 0 {
		fmt.Fprint(&written, err)
	}
	return written.String()
}

// farRedis is the Redis of a service that the nodes ask. While it is away the service refuses what
// it is asked, as it does then.
type farRedis struct {
	service http.Handler
	away    atomic.Bool
}

func (f *farRedis) open(t *testing.T) {
	t.Helper()
	store, err := redisstore.Open(t.Context(), "embedded:")
	expect.NoError(t, "open the store", err)
	here := server.New((&program{stderr: io.Discard}).serviceHere(&config.Service{}, store))
	f.service = here.Handler()
	t.Cleanup(func() {
		_ = here.Close(context.Background())
		_ = store.Close()
	})
}

func (f *farRedis) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !f.away.Load() {
		f.service.ServeHTTP(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(http.StatusServiceUnavailable)
	_, _ = fmt.Fprintf(w, `{"code":%q,"status":503,"title":"away"}`, api.StoreUnavailable)
}
