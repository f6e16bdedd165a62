package monitoring_test

import (
	"context"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/counter"
	"github.com/coatcheck/coatcheck/gateway"
	"github.com/coatcheck/coatcheck/idempotency"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/lock"
	"github.com/coatcheck/coatcheck/metrics"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/redisstore/observe"
	"github.com/coatcheck/coatcheck/segment"
	"github.com/coatcheck/coatcheck/server"
	"github.com/coatcheck/coatcheck/workerlease"
)

// scene is a program on a Redis of its own, with what three scrapes brought: before a fault was
// made, while it lasted, and after it was mended.
type scene struct {
	*testing.T

	redis   *redistest.Server
	url     string // of the store, where it is not that of redis
	fetch   func() (text string, ok bool)
	scrapes []map[string]float64 // by series; nil = the scrape failed
	ack     int                  // replicas that confirm
	aging   bool                 // what is waited for goes on meanwhile
}

// timeout is how long a call of a program to its Redis takes at most.
const timeout = 2 * time.Second

func newScene(t *testing.T) *scene {
	t.Helper()
	server := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "everysec")
	return &scene{T: t, redis: server, url: server.URL()}
}

// scrape asks the program for its metrics.
func (s *scene) scrape() {
	s.Helper()
	text, ok := s.fetch()
	if !ok {
		s.scrapes = append(s.scrapes, nil)
		return
	}
	found := map[string]float64{}
	for _, line := range sampleLine.FindAllStringSubmatch(text, -1) {
		value, err := strconv.ParseFloat(line[0][strings.LastIndexByte(line[0], ' ')+1:], 64)
		expect.NoError(s, "the value in "+line[0], err)
		if strings.HasPrefix(line[1], "coatcheck_") {
			found[line[1]+"{"+line[2]+"}"] = value
		}
	}
	s.scrapes = append(s.scrapes, found)
}

func (s *scene) store(counted *metrics.Store) *redisstore.Store {
	s.Helper()
	store, err := redisstore.OpenConfig(s.Context(), redisstore.Config{URL: s.url, Timeout: timeout, Ack: s.ack, AckTimeout: timeout / 4,
		Observers: []observe.Observer{counted.Observer()}})
	expect.MustEqual(s, "error of OpenConfig", err, nil)
	s.Cleanup(func() { _ = store.Close() })
	return store
}

func (s *scene) shows(registry *metrics.Registry, lookAgain func()) {
	s.fetch = func() (string, bool) { lookAgain(); return scrape(registry), true }
}

// library is a Go program that uses each part.
type library struct {
	*scene

	store    *redisstore.Store
	tokens   *idempotency.Tokens
	pools    *workerlease.Pools
	counters *counter.Counters
	locks    *lock.Locks
	segments *segment.Segments
}

// library starts a Go program; its segments come from the source.
func (s *scene) library(workers workerlease.Config, source segment.Source) *library {
	s.Helper()
	counted := metrics.NewStore("v1.2.3")
	store := s.store(counted)
	workers.Logger = slog.New(slog.DiscardHandler)
	l := &library{s, store, idempotency.New(store, idempotency.Config{}), workerlease.New(store, workers),
		counter.New(store, counter.Config{HoldOff: 5 * time.Second}), lock.New(store, lock.Config{}), segment.New(source, segment.Config{})}
	s.Cleanup(func() {
		l.segments.Close()
		_, _ = l.counters.Close(), l.locks.Close()
	})
	counted.Show(metrics.Program{Store: store, Tokens: l.tokens, Workers: l.pools, Counters: l.counters, Segments: l.segments})
	s.shows(counted.Registry, counted.LookAgain)
	return l
}

// program is a service or a gateway that is asked by its handler.
type program struct {
	*scene

	handler http.Handler
}

func (s *scene) service(config server.Config) program {
	s.Helper()
	counted := metrics.NewService("v1.2.3")
	config.Store, config.Metrics = s.store(counted.Store), counted
	service := server.New(config)
	s.Cleanup(func() {
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		_ = service.Close(ended)
	})
	s.shows(counted.Registry, counted.LookAgain)
	return program{s, service.Handler()}
}

// gateway starts one before an upstream, with a routes file.
func (s *scene) gateway(upstream, routes string) (program, *gateway.Gateway, string) {
	s.Helper()
	counted, file := metrics.NewStore("v1.2.3"), filepath.Join(s.TempDir(), "routes.yaml")
	expect.MustEqual(s, "error of WriteFile", os.WriteFile(file, []byte(routes), 0o600), nil)
	to, err := gateway.ParseUpstream(upstream)
	expect.MustEqual(s, "error of ParseUpstream", err, nil)
	g, err := gateway.New(gateway.Config{Store: s.store(counted), Upstream: to, RoutesFile: file, Metrics: counted})
	expect.MustEqual(s, "error of gateway.New", err, nil)
	s.Cleanup(func() {
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		_ = g.Close(ended)
	})
	s.shows(counted.Registry, counted.LookAgain)
	return program{s, g}, g, file
}

// do sends a request some times, and returns the last answer.
func (p program) do(times int, method, path, body string, header ...string) *httptest.ResponseRecorder {
	p.Helper()
	var answer *httptest.ResponseRecorder
	for range times {
		request := httptest.NewRequestWithContext(p.Context(), method, "http://127.0.0.1"+path, strings.NewReader(body))
		for _, line := range header {
			name, value, _ := strings.Cut(line, ": ")
			request.Header.Set(name, value)
		}
		answer = httptest.NewRecorder()
		p.handler.ServeHTTP(answer, request)
	}
	return answer
}

// want sends a request until it has a status.
func (p program) want(status int, method, path, body string) {
	p.Helper()
	expect.Eventually(p, method+" "+path+" is "+strconv.Itoa(status), func() bool {
		return p.do(1, method, path, body).Code == status
	})
}

// listens has the program scraped at a listener of its own, until it ends.
func (s *scene) listens() (end func()) {
	text := s.fetch
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		found, _ := text()
		_, _ = io.WriteString(w, found)
	}))
	s.Cleanup(web.Close)
	s.fetch = func() (string, bool) {
		answer, err := http.Get(web.URL)
		if err != nil {
			return "", false
		}
		defer answer.Body.Close()
		found, err := io.ReadAll(answer.Body)
		return string(found), err == nil
	}
	return web.Close
}

// A scene in time: an hour before the fault, half an hour of it, and what follows.
const (
	faultBegins = time.Hour
	faultEnds   = faultBegins + 30*time.Minute
	sceneEnds   = faultEnds + 90*time.Minute
)

// series makes of the scrapes what Prometheus has of a target. What the fault has counted between
// two scrapes it counts in each interval while it lasts; a gauge has the value of its scrape.
func (s *scene) series(target map[string]string) (all []series) {
	names := map[string]bool{}
	for _, scraped := range s.scrapes {
		for name := range scraped {
			names[name] = true
		}
	}
	for name := range names {
		metric, rest, _ := strings.Cut(name, "{")
		of := map[string]string{"job": target["job"], "instance": target["instance"]}
		for _, label := range pair.FindAllStringSubmatch(rest, -1) {
			of[label[1]] = label[2]
		}
		all = append(all, series{metric: metric, of: of, values: s.timeline(name, metric)})
	}
	up := s.steps(func(scrape int, _ time.Duration) float64 {
		if s.scrapes[scrape] == nil {
			return 0
		}
		return 1
	})
	return append(all, series{metric: "up", of: target, values: up})
}

func (s *scene) timeline(name, metric string) []float64 {
	at := func(scrape int) float64 {
		if value, ok := s.scrapes[scrape][name]; ok {
			return value
		}
		return math.NaN()
	}
	grows := false
	for _, end := range []string{"_total", "_bucket", "_sum", "_count"} {
		grows = grows || strings.HasSuffix(metric, end)
	}
	before, during, after := at(0), at(1), at(2)
	each := during - before // of an interval
	if math.IsNaN(before) {
		each = during
	}
	return s.steps(func(scrape int, into time.Duration) float64 {
		intervals := float64(into/scraped) + 1
		switch {
		case !grows && scrape == 1 && s.aging && strings.Contains(metric, "_wait_"):
			return during + into.Seconds()
		case !grows || scrape == 0 || math.IsNaN(at(scrape)):
			return at(scrape)
		case scrape == 1:
			return during + each*(intervals-1)
		}
		return during + each*(float64((faultEnds-faultBegins)/scraped)-1) + after - during
	})
}

// steps has a value for each interval of a scene: of which scrape, and how long after the first
// that is like it.
func (s *scene) steps(value func(scrape int, into time.Duration) float64) (values []float64) {
	for at := time.Duration(0); at <= sceneEnds; at += scraped {
		switch {
		case at < faultBegins:
			values = append(values, value(0, at))
		case at < faultEnds:
			values = append(values, value(1, at-faultBegins))
		default:
			values = append(values, value(2, at-faultEnds))
		}
	}
	return values
}
