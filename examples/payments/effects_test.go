package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coatcheck/coatcheck/idempotency"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/redisstore"
)

// TestEffectsAreAsTheTableSays does to every protection at once what a row of the table in
// docs/effects.md says, on real processes and a real Redis, and compares what came of it with the
// page: how often the effect happened, and what the clients heard.
func TestEffectsAreAsTheTableSays(t *testing.T) {
	said := table(t)
	for name, run := range cases {
		t.Run(name, func(t *testing.T) {
			row, ok := said[name]
			if !ok {
				t.Fatal("the table has no such row")
			}
			got := run(t)
			for i, p := range protections {
				if row[i] != got[i] {
					t.Errorf("%s: %q, and the page says %q", p.name, got[i], row[i])
				}
			}
			if t.Failed() {
				t.Logf("| %s | %s |", name, strings.Join(got, " | "))
			}
		})
	}
	for name := range said {
		if cases[name] == nil {
			t.Errorf("the table has a row that nothing tests: %s", name)
		}
	}
}

// table reads the page: by the first column of each row what the others say, in the order of
// protections. An empty cell says what the one on its left does.
func table(t *testing.T) map[string][]string {
	t.Helper()
	page, err := os.ReadFile("../../docs/effects.md")
	expect.NoError(t, "docs/effects.md is read", err)
	rows := map[string][]string{}
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != len(protections)+1 || strings.HasPrefix(line, "|--") || strings.HasPrefix(line, "| case") {
			continue
		}
		for i := range cells {
			if cells[i] = strings.TrimSpace(cells[i]); cells[i] == "" {
				cells[i] = cells[i-1]
			}
		}
		rows[cells[0]] = cells[1:]
	}
	return rows
}

// cases are the rows of the table. Each returns what came of it under every protection.
var cases = map[string]func(*testing.T) []string{
	"two clicks at once":                                          doubleClick,
	"the answer was lost, the client retries":                     lostAnswer,
	"the process dies before the effect":                          func(t *testing.T) []string { return death(t, beforeCharge) },
	"the process dies inside the transaction":                     func(t *testing.T) []string { return death(t, inTransaction) },
	"the process dies after the commit":                           func(t *testing.T) []string { return death(t, afterCommit) },
	"the process is paused before the effect":                     func(t *testing.T) []string { return pause(t, beforeCharge) },
	"the process is paused after the commit":                      func(t *testing.T) []string { return pause(t, afterCommit) },
	"failover after the master died, ack 1":                       func(t *testing.T) []string { return failover(t, 1, false) },
	"failover, ack 0: the replica had not heard of it":            func(t *testing.T) []string { return failover(t, 0, false) },
	"the same, with a token whose issue the replica had heard of": func(t *testing.T) []string { return failover(t, 0, true) },
	"FLUSHALL after the answer":                                   func(t *testing.T) []string { return flushed(t, false) },
	"FLUSHALL after the answer, with an issued token":             func(t *testing.T) []string { return flushed(t, true) },
	"FLUSHALL while the first attempt runs":                       flushedUnderWay,
	"Redis evicts the record":                                     evicted,
	"the retry comes after the retention":                         expired,
}

// scene is one case: a Redis, and where the effects happen.
type scene struct {
	t   *testing.T
	url string
	dir string
	ack string

	headers []string        // each protection's key or token
	first   []<-chan answer // what the first client of each protection hears
	heard   []string        // what is told of each protection
}

func newScene(t *testing.T, url string) *scene {
	return &scene{
		t: t, url: url, dir: t.TempDir(), ack: "0", heard: make([]string, len(protections)),
		headers: slices.Repeat([]string{"Idempotency-Key: k"}, len(protections)),
	}
}

// issue gives every protection a token that was issued, instead of a key that the client chose.
func (s *scene) issue() {
	s.t.Helper()
	store, err := redisstore.Open(s.t.Context(), s.url)
	expect.NoError(s.t, "the store is opened", err)
	defer store.Close()
	for i := range protections {
		token, err := idempotency.New(store, idempotency.Config{}).Issue(s.t.Context(), "", "", 0)
		expect.NoError(s.t, "Issue of a token", err)
		s.headers[i] = "Idempotency-Token: " + token.Value
	}
}

// process starts a server of all protections, which waits at a step if one is given.
func (s *scene) process(waitAt step) *process {
	s.t.Helper()
	return s.leased(long, waitAt)
}

func (s *scene) leased(lease string, waitAt step) *process {
	s.t.Helper()
	return start(s.t, "matrix", waitAt, s.url, s.dir, lease, s.ack)
}

// begin sends the first request under every protection and waits until all of them are at the gate.
func (s *scene) begin(p *process) {
	s.t.Helper()
	for i, protection := range protections {
		s.first = append(s.first, p.later("/"+protection.name, "", s.headers[i]))
	}
	p.arrived(len(protections))
}

// answered sends the first request under every protection, and keeps the answers.
func (s *scene) answered(p *process) {
	s.t.Helper()
	for i, protection := range protections {
		first := make(chan answer, 1)
		first <- p.settled("/"+protection.name, "", s.headers[i])
		s.first = append(s.first, first)
	}
}

// ask sends the same request again under every protection, and tells what it hears. before, if not
// nil, has the first answers.
func (s *scene) ask(p *process, before []answer, waiting bool) {
	s.t.Helper()
	for i, protection := range protections {
		var a answer
		if waiting {
			a = p.settled("/"+protection.name, "", s.headers[i])
		} else {
			a = p.ask("POST", "/"+protection.name, "", s.headers[i])
		}
		var first answer
		if before != nil {
			first = before[i]
		}
		s.tell(i, words(a, first))
	}
}

func (s *scene) tell(i int, what string) {
	if s.heard[i] != "" {
		s.heard[i] += ", then "
	}
	s.heard[i] += what
}

// words says an answer as the table does. first is that of the first attempt, if its client got
// one.
func words(a, first answer) string {
	switch {
	case a.status == http.StatusOK && a.replayed():
		return "replayed"
	case a.status == http.StatusOK && first.status == 0:
		return "done"
	case a.status == http.StatusOK && a.body == first.body:
		return "ran again, same answer"
	case a.status == http.StatusOK:
		return "ran again, another answer"
	}
	return strings.ReplaceAll(strings.TrimPrefix(a.code(), "idempotency-"), "-", " ")
}

// firsts waits for the first clients' answers.
func (s *scene) firsts() []answer {
	s.t.Helper()
	var answers []answer
	for _, first := range s.first {
		select {
		case a := <-first:
			answers = append(answers, a)
		case <-time.After(2 * time.Minute):
			s.t.Fatal("a first client got no answer")
		}
	}
	return answers
}

// result counts the effects, and says them before what was heard.
func (s *scene) result() []string {
	s.t.Helper()
	for i, p := range protections {
		l, err := openEffects(s.t.Context(), s.dir, p, func(step) {})
		expect.NoError(s.t, "the ledger of effects is opened", err)
		n := rowsIn(s.t, l, "effects")
		expect.NoError(s.t, "the ledger of effects is closed", l.close())
		count := fmt.Sprint(n)
		if n > 1 {
			count = "**" + count + "**"
		}
		s.heard[i] = count + ": " + s.heard[i]
	}
	return s.heard
}

func doubleClick(t *testing.T) []string {
	s := newScene(t, redistest.Start(t).URL())
	one, other := s.process(beforeCharge), s.process("")
	s.begin(one)
	s.ask(other, nil, false)
	one.open()
	s.ask(other, s.firsts(), true)
	return s.result()
}

func lostAnswer(t *testing.T) []string {
	s := newScene(t, redistest.Start(t).URL())
	s.answered(s.process(""))
	s.ask(s.process(""), s.firsts(), false)
	return s.result()
}

func death(t *testing.T, at step) []string {
	s := newScene(t, redistest.Start(t).URL())
	doomed := s.leased(short, at)
	s.begin(doomed)
	doomed.kill()
	s.ask(s.process(""), s.firsts(), true)
	return s.result()
}

// pause stops a process for longer than its lease, lets another one be asked, and lets the first go
// on.
func pause(t *testing.T, at step) []string {
	s := newScene(t, redistest.Start(t).URL())
	sleeper, other := s.leased(short, at), s.process("")
	s.begin(sleeper)
	sleeper.pause()
	s.ask(other, nil, true)
	sleeper.resume()
	sleeper.open()
	for i, a := range s.firsts() {
		s.heard[i] += "; the first client: " + words(a, answer{})
	}
	return s.result()
}

// failover sends the first request to a master that is then killed. Without an acknowledgement its
// replica has not got the news by then.
func failover(t *testing.T, ack int, issued bool) []string {
	set := redistest.StartSentinel(t, 1)
	s := newScene(t, set.URL())
	s.ack = fmt.Sprint(ack)
	one, other := s.process(""), s.process("")
	old, replica := set.Master(), set.Replicas()[0]
	if issued {
		s.issue()
		expect.Eventually(t, "the replica has the tokens", func() bool { return len(records(t, replica.Client())) == len(protections) })
	}
	if ack == 0 {
		replica.Pause()
		expect.NoError(t, "CLIENT KILL of the replica", old.Client().Do(t.Context(), "CLIENT", "KILL", "TYPE", "replica").Err())
	}
	s.answered(one)
	old.Kill()
	replica.Resume()
	set.WaitForMaster(old)
	if ack > 0 {
		old.Restart() // as a replica, so that there is one to acknowledge
	}
	s.ask(other, s.firsts(), true)
	return s.result()
}

func flushed(t *testing.T, issued bool) []string {
	redis := redistest.Start(t)
	s := newScene(t, redis.URL())
	if issued {
		s.issue()
	}
	s.answered(s.process(""))
	flush(t, redis)
	s.ask(s.process(""), s.firsts(), true)
	return s.result()
}

// flushedUnderWay lets Redis forget the claim of a handler that is running and has had no effect
// yet.
func flushedUnderWay(t *testing.T) []string {
	redis := redistest.Start(t)
	s := newScene(t, redis.URL())
	one, other := s.process(beforeCharge), s.process("")
	s.begin(one)
	flush(t, redis)
	s.ask(other, nil, true)
	one.open()
	for i, a := range s.firsts() {
		s.heard[i] += "; the first client: " + words(a, answer{})
	}
	return s.result()
}

// evicted fills a Redis that evicts keys until the operations are gone.
func evicted(t *testing.T) []string {
	redis := redistest.Start(t, "--maxmemory-policy", "allkeys-lru")
	s := newScene(t, redis.URL())
	p := s.process("")
	s.answered(p)
	client, ctx := redis.Client(), context.Background()
	used, err := client.InfoMap(ctx, "memory").Result()
	expect.NoError(t, "INFO memory", err)
	expect.NoError(t, "maxmemory is what is used", client.ConfigSet(ctx, "maxmemory", used["Memory"]["used_memory"]).Err())
	n := 0
	expect.Eventually(t, "the records are evicted", func() bool {
		for range 200 {
			n++
			// it may be refused for a moment
			_ = client.Set(ctx, fmt.Sprintf("filler:%d", n), strings.Repeat("x", 1000), 0).Err()
		}
		return len(records(t, client)) == 0
	})
	expect.NoError(t, "maxmemory without a bound", client.ConfigSet(ctx, "maxmemory", "0").Err())
	s.ask(p, s.firsts(), true)
	return s.result()
}

// expired lets the retention of the answers end now.
func expired(t *testing.T) []string {
	redis := redistest.Start(t)
	s := newScene(t, redis.URL())
	p := s.process("")
	s.answered(p)
	for _, record := range records(t, redis.Client()) {
		expect.NoError(t, "PEXPIRE of a record", redis.Client().PExpire(context.Background(), record, time.Millisecond).Err())
	}
	expect.Eventually(t, "the records expire", func() bool { return len(records(t, redis.Client())) == 0 })
	s.ask(p, s.firsts(), true)
	return s.result()
}

// records lists what a Redis knows of operations.
func records(t testing.TB, client *redis.Client) []string {
	t.Helper()
	keys, err := client.Keys(context.Background(), "coatcheck:token:{*").Result()
	expect.NoError(t, "KEYS of the tokens", err)
	return keys
}
