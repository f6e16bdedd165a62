//go:build check && linux

package resolvers

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/chaos/evidence"
	"github.com/coatcheck/coatcheck/chaos/internal/chaostest"
	"github.com/coatcheck/coatcheck/idempotency"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/proctest"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/internal/testing/sqltest"
	"github.com/coatcheck/coatcheck/redisstore"
)

// The queue is a table of jobs, which any consumer takes, also one that another has. Consumers say
// when they begin to pay, and what they were given before the job is done.
const (
	jobsTable  = `CREATE TABLE jobs (id varchar(64) PRIMARY KEY, done boolean NOT NULL DEFAULT false)`
	begunTable = `CREATE TABLE begun (n serial PRIMARY KEY, pid integer NOT NULL)`
	toldTable  = `CREATE TABLE told (client_key varchar(64) NOT NULL, answer text NOT NULL)`
)

const consumers = 3

// jobs is how many there are: 20, and at length 100.
func jobs() int { return max(20, *keys/5) }

// queues are the languages of consumers.
var queues = []struct {
	name    string
	command []string // nil = this test binary
	dialect dialect
}{
	{"Go", nil, dialect{"PostgreSQL", numbered}},
	{"Python", []string{"/usr/bin/python3", "consumer.py"}, dialect{"PostgreSQL", formatted}},
	{"node", []string{"node", "consumer.mjs"}, dialect{"PostgreSQL", numbered}},
}

// Consumers that are killed at random moments, also while Redis fails over, pay each job once, and
// nobody settles anything.
func TestConsumersThatAreKilledPayEachJobOnce(t *testing.T) {
	beside(t)
	for _, of := range queues {
		t.Run(of.name, func(t *testing.T) {
			beside(t)
			redis := redistest.StartSentinel(t, 1)
			chaostest.WatchSentinels(t, redis, downAfter)
			r := recipeOf(t, of.dialect)
			d := newDatabase(t, sqltest.PostgreSQL, r.table, paymentsTable, jobsTable, begunTable, toldTable)
			for n := range jobs() {
				d.ask(fmt.Sprintf("INSERT INTO jobs (id) VALUES ('job-%d')", n))
			}
			environment := slices.Concat(d.environment, []string{"RECIPE=" + r.file(t), "REDIS=" + redis.URL(), chaostest.RoleVariable + "=" + consumerRole})
			words, folder := []string{os.Args[0]}, ""
			if of.command != nil {
				words, folder = of.command, proctest.Packages(t, filepath.Join("testdata", "services"))
				environment = append(environment, clientsOf(t, redis.URL())...)
			}
			start := func() *chaostest.Process {
				command := exec.Command(words[0], words[1:]...)
				command.Dir, command.Stderr, command.Env = folder, os.Stderr, append(os.Environ(), environment...)
				return chaostest.Start(t, command)
			}
			killed := d.killConsumers(start, redis)
			left := doubtsOf(t, redis.URL())
			expect.Equal(t, "operations in doubt", left, 0)
			f := d.judgeJobs()
			if killed == 0 {
				t.Error("no consumer was killed: this run says nothing")
			}
			proveCase(t, "a consumer in "+of.name+", PostgreSQL", jobs(), consumers, fmt.Sprintf("%d · – · – · 1", killed), left, f)
		})
	}
}

// clientsOf starts a service on a Redis, and returns what tells where it and its clients are.
func clientsOf(t *testing.T, redis string) []string {
	t.Helper()
	s := chaostest.Serve(t, exec.Command(chaostest.Coatcheck(t), "serve", "--json", "--listen", "127.0.0.1:0", "--redis", redis, "--ack", "all",
		"--store-timeout", storeTimeout.String(), "--access-log", "none", "--id-pool="))
	clients, err := filepath.Abs("../../clients")
	expect.NoError(t, "finding the clients", err)
	return []string{
		"SERVICE=" + s.URL, "PYTHONPATH=" + filepath.Join(clients, "python", "src"), "PYTHONDONTWRITEBYTECODE=1",
		"PACKAGE=file://" + filepath.Join(clients, "node", "index.mjs"),
	}
}

// killConsumers has consumers work until all jobs are done, and kills some that have begun to pay,
// at any moment of that. When half of the jobs are done it kills Redis's master. It returns how
// many consumers it has killed. The last ones go on: an answer that was given while Redis was away
// is recorded later, and if its process was killed meanwhile others find the doubt.
func (d *database) killConsumers(start func() *chaostest.Process, redis *redistest.SentinelSet) (killed int) {
	d.t.Helper()
	var running []*chaostest.Process
	for range consumers {
		running = append(running, start())
	}
	done, begun := 0, 0
	chaostest.Await(d.t, 2*time.Minute, func() string {
		counts := d.ask("SELECT (SELECT count(*) FROM jobs WHERE done), coalesce(max(n), 0), coalesce((array_agg(pid ORDER BY n DESC))[1], 0) FROM begun")[0]
		before, begunBefore := done, begun
		done, _ = strconv.Atoi(counts[0]) // these are numbers
		begun, _ = strconv.Atoi(counts[1])
		at := slices.IndexFunc(running, func(p *chaostest.Process) bool { return strconv.Itoa(p.Pid()) == counts[2] })
		switch {
		case done == jobs():
			return ""
		case before < jobs()/2 && done >= jobs()/2:
			chaostest.KillMaster(redis)()
		case begun > begunBefore && at >= 0 && killed < done/2+6:
			time.Sleep(rand.N(120 * time.Millisecond)) // which is about how long a payment takes
			running[at].Kill()
			running[at] = start()
			killed++
		}
		return fmt.Sprintf("%d of %d jobs are done", done, jobs())
	})
	return killed
}

// judgeJobs compares what consumers were given with the payments.
func (d *database) judgeJobs() findings {
	d.t.Helper()
	b := newBook()
	for _, row := range d.ask("SELECT client_key, answer FROM told") {
		b.answers = append(b.answers, answer{key: row[0], text: row[1]})
	}
	for n := range jobs() {
		key := fmt.Sprintf("job-%d", n)
		if !slices.ContainsFunc(b.answers, func(a answer) bool { return a.key == key }) {
			b.answers = append(b.answers, answer{key: key})
		}
	}
	f := b.judge(d.payments(), true)
	if f.twice+f.unanswered+f.wrong > 0 {
		d.t.Errorf("%d jobs were paid twice, %d have no answer, %d answers are wrong, want none:\n%v", f.twice, f.unanswered, f.wrong, f.samples)
	}
	return f
}

// doubtsOf waits until no operation is in doubt in a Redis, and returns how many are after a
// minute.
func doubtsOf(t *testing.T, url string) (left int) {
	t.Helper()
	store, err := redisstore.OpenConfig(t.Context(), redisstore.Config{URL: url, Timeout: time.Minute})
	expect.NoError(t, "opening Redis", err)
	defer store.Close()
	tokens := idempotency.New(store, idempotency.Config{})
	defer tokens.Close(t.Context())
	for since := time.Now(); ; time.Sleep(200 * time.Millisecond) {
		found, err := tokens.Doubts(t.Context())
		expect.NoError(t, "the list of doubts", err)
		if found.Operations == 0 || time.Since(since) > time.Minute {
			return found.Operations
		}
	}
}

// proveCase writes down a row of what has no counters of resolutions.
func proveCase(t *testing.T, who string, keys, clients int, killed string, left int, f findings) {
	t.Helper()
	cells := []string{who, "yes", fmt.Sprintf("%d × %d", keys, clients), killed, "–", "–", "–", "–"}
	for _, n := range []int{left, f.unanswered, f.wrong, f.twice} {
		cells = append(cells, strconv.Itoa(n))
	}
	t.Logf("%v", cells)
	chaostest.ProveCase(t, evidence.Resolvers, cells...)
}

// runConsumer is a consumer in Go.
func runConsumer() error {
	ctx := context.Background()
	b, err := openBank()
	if err != nil {
		return err
	}
	store, err := redisstore.OpenConfig(ctx, redisstore.Config{URL: os.Getenv("REDIS"), Ack: redisstore.AckAll, Timeout: storeTimeout})
	if err != nil {
		return err
	}
	tokens := idempotency.New(store, idempotency.Config{})
	for {
		var id string
		if err := b.db.QueryRowContext(ctx, "SELECT coalesce((SELECT id FROM jobs WHERE NOT done ORDER BY random() LIMIT 1), '')").Scan(&id); err != nil {
			return err
		}
		result, err := idempotency.Result{}, errors.New("there is no job")
		if id != "" {
			options := idempotency.ClaimOptions{Lease: time.Second, Resolve: b.resolver}
			result, err = tokens.Do(ctx, idempotency.Key{Scope: "jobs", ID: id}, options, func(ctx context.Context, attempt *idempotency.Attempt) ([]byte, error) {
				if _, err := b.db.ExecContext(ctx, fmt.Sprintf("INSERT INTO begun (pid) VALUES (%d)", os.Getpid())); err != nil {
					return nil, err
				}
				time.Sleep(rand.N(50 * time.Millisecond))
				answer, err := b.payOrTell(context.WithoutCancel(ctx), attempt.Operation, attempt.Fence, id, false)
				time.Sleep(rand.N(50 * time.Millisecond))
				return []byte(answer), err
			})
		}
		if err != nil { // the job is still there
			time.Sleep(50 * time.Millisecond)
			continue
		}
		for _, text := range []string{"INSERT INTO told (client_key, answer) VALUES ('%[1]s', '%[2]s')", "UPDATE jobs SET done = true WHERE id = '%[1]s'"} {
			if _, err := b.db.ExecContext(ctx, fmt.Sprintf(text+" -- %[2]s", id, result.Value)); err != nil {
				return err
			}
		}
	}
}

// Of coatcheck once, which several start for the same keys, those that begin are killed at random
// moments until one has come through. Each key is paid once.
func TestOnceThatIsKilledPaysEachKeyOnce(t *testing.T) {
	beside(t)
	redis := redistest.Start(t)
	r := recipeOf(t, dialect{"A table of operations", marked})
	d := newDatabase(t, "", r.table, paymentsTable)
	program, err := filepath.Abs(filepath.Join("testdata", "services", "once.py"))
	expect.NoError(t, "finding the job", err)
	job := "/usr/bin/python3 " + program
	var killed atomic.Int64
	b := newBook()
	var all sync.WaitGroup
	const onceKeys, runners = 6, 2
	kills := 1 // of each runner; who is killed while it asks keeps others from asking for 35 s
	if *keys > shortKeys {
		kills = 4
	}
	for n := range onceKeys {
		key := fmt.Sprintf("job-%d", n)
		for runner := range runners {
			all.Go(func() {
				for try := 0; ; try++ {
					command := exec.Command(chaostest.Coatcheck(t), "once", "--redis", redis.URL(), "--lease", "1s", "--resolve", job+" close", key, "--", "/usr/bin/python3", program, "pay")
					command.Env = append(append(os.Environ(), d.environment...), "RECIPE="+r.file(t))
					process := chaostest.Start(t, command)
					if try < kills {
						select {
						case <-process.Done():
						case <-time.After(rand.N(600 * time.Millisecond)):
							process.Kill()
							killed.Add(1)
						}
					}
					if process.Err() == nil {
						b.mu.Lock()
						b.answers = append(b.answers, answer{key: key, nth: runner, text: "done"})
						b.mu.Unlock()
						return
					}
					if t.Context().Err() != nil {
						return
					}
					time.Sleep(200 * time.Millisecond)
				}
			})
		}
	}
	all.Wait()
	left := doubtsOf(t, redis.URL())
	expect.Equal(t, "operations in doubt", left, 0)
	expect.Equal(t, "runners that have come to an end", len(b.answers), onceKeys*runners)
	payments := d.payments()
	expect.Equal(t, "keys that are paid", len(payments), onceKeys)
	f := findings{}
	for key, ids := range payments {
		if len(ids) > 1 {
			f.addf(&f.twice, "%s has %d payments", key, len(ids))
		}
	}
	expect.Equal(t, "keys that are paid twice", f.twice, 0)
	proveCase(t, "`coatcheck once`, SQLite", onceKeys, runners, fmt.Sprintf("%d · – · – · –", killed.Load()), left, f)
}
