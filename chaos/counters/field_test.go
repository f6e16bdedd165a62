//go:build check

package counters

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coatcheck/coatcheck/chaos/internal/chaostest"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
)

// field is a Redis and the processes that count with it.
type field struct {
	*chaostest.Field[*process]

	role    string
	servers []*redistest.Server
	stages  []stage
}

// process is a process that counts, and the file that it writes.
type process struct {
	*chaostest.Process

	file string
}

func (p *process) String() string { return filepath.Base(p.file) }

// finish has a process end in order.
func (f *field) finish(p *process) {
	p.Finish()
	if code := p.Code(); code != 0 {
		f.T.Errorf("%v ended with %d", p, code)
	}
}

// Progress is how many bytes the process has written.
func (p *process) Progress() int64 { return chaostest.Size(p.file) }

// newField starts a Redis with two replicas, and processes in a role.
func newField(t *testing.T, role string) *field {
	t.Helper()
	f := &field{role: role}
	f.Field = chaostest.NewField(t, func(number int) *process { return f.start(f.url(), number) })
	f.servers = append([]*redistest.Server{f.Redis.Master()}, f.Redis.Replicas()...)
	f.admit()
	f.Fill(*processes)
	return f
}

func (f *field) start(url string, number int) *process {
	file := filepath.Join(f.Folder, fmt.Sprintf("%04d.told", number))
	return &process{chaostest.StartRole(f.T, roleVariable+"="+f.role, redisVariable+"="+url, fileVariable+"="+file,
		fmt.Sprintf("%s=%d", numberVariable, number), fmt.Sprintf("%s=%d", ackVariable, *ack)), file}
}

// login is how processes come to a server. Sentinels come without; a replica with the name of its
// address.
const login = "counting:known"

func (f *field) url() string {
	return strings.Replace(f.Redis.URL(), "redis+sentinel://", "redis+sentinel://"+login+"@", 1)
}

// beside starts processes that know one server only.
func (f *field) beside(server *redistest.Server, n int) (started []*process) {
	for range n {
		started = append(started, f.start("redis://"+login+"@"+server.Addr(), f.Number()))
	}
	return started
}

// admit tells all servers who comes, and replicas to come as themselves. They know it when they
// start again, too.
func (f *field) admit() {
	f.T.Helper()
	user, password, _ := strings.Cut(login, ":")
	for _, server := range f.servers {
		for _, name := range append([]string{user}, f.addresses()...) {
			chaostest.Do(f.T, server, "ACL", "SETUSER", name, "on", ">"+password, "~*", "&*", "+@all")
		}
		chaostest.Do(f.T, server, "CONFIG", "SET", "masteruser", server.Addr(), "masterauth", password)
		chaostest.Do(f.T, server, "CONFIG", "REWRITE")
	}
	chaostest.Do(f.T, f.servers[0], "CLIENT", "KILL", "TYPE", "replica")
	f.follow()
}

func (f *field) addresses() (all []string) {
	for _, server := range f.servers {
		all = append(all, server.Addr())
	}
	return all
}

// as speaks to a server as the processes do, whatever else is cut off.
func (f *field) as(server *redistest.Server, do func(ctx context.Context, client *redis.Client) error) error {
	user, password, _ := strings.Cut(login, ":")
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), Username: user, Password: password, MaxRetries: -1})
	defer client.Close()
	return do(f.T.Context(), client)
}

// sentinels is the user as whom they come.
const sentinels = "default"

// cut has a server neither hear nor answer some users, until it is mended.
func (f *field) cut(server *redistest.Server, users ...string) (mend func()) {
	f.T.Helper()
	say := func(words ...any) {
		err := f.as(server, func(ctx context.Context, client *redis.Client) error { return client.Do(ctx, words...).Err() })
		if err != nil {
			f.T.Errorf("%v at a server that is cut off: got error %v, want none", words, err)
		}
	}
	for _, user := range users {
		say("ACL", "SETUSER", user, "nocommands")
		say("CLIENT", "KILL", "USER", user)
	}
	return func() {
		for _, user := range users {
			say("ACL", "SETUSER", user, "+@all")
		}
	}
}

// follow waits until all replicas follow one master.
func (f *field) follow() {
	f.T.Helper()
	chaostest.Await(f.T, time.Minute, func() string {
		return chaostest.Confirm(f.T.Context(), f.Redis.Master(), len(f.servers)-1)
	})
}

// settle waits until all processes have seen each counter again: what is lost next is no more than
// the margin beyond what they have seen.
func (f *field) settle() {
	f.T.Helper()
	f.follow()
	f.await(seen, f.Processes...)
}

// await waits until each of some processes has been told something, that many times from now on.
func (f *field) await(times int64, processes ...*process) {
	f.T.Helper()
	before := map[*process]int64{}
	for _, p := range processes {
		before[p] = p.Progress()
	}
	chaostest.Await(f.T, time.Minute, func() string {
		for _, p := range processes {
			if n := (p.Progress() - before[p]) / toldBytes; n < times {
				return fmt.Sprintf("%v was told something %d times, not %d", p, n, times)
			}
		}
		return ""
	})
}

// stage notes what is broken from now on.
func (f *field) stage(name string) { f.stages = append(f.stages, stage{moment(), name}) }
