//go:build check

package counters

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sys/unix"

	"github.com/coatcheck/coatcheck/chaos/internal/chaostest"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
)

// field is a Redis and the processes that count with it.
type field struct {
	*chaostest.Field

	servers []*redistest.Server
}

// newField starts a Redis with two replicas, and processes in a role.
func newField(t *testing.T, role string) *field {
	t.Helper()
	redis := redistest.StartSentinel(t, 2)
	store := strings.Replace(redis.URL(), "redis+sentinel://", "redis+sentinel://"+login+"@", 1)
	f := &field{chaostest.NewField(t, role, store, *ack), append([]*redistest.Server{redis.Master()}, redis.Replicas()...)}
	f.Redis, f.Orderly = redis, true
	f.Numbers = role == "plain" || f.Lot.IntN(2) == 0
	f.admit()
	f.Fill(*processes)
	return f
}

// login is how processes come to a server. Sentinels come without; a replica with the name of its
// address.
const login = "counting:known"

// beside starts processes that know one server only.
func (f *field) beside(server *redistest.Server, n int) (started []*chaostest.Member) {
	for range n {
		started = append(started, f.Start("redis://"+login+"@"+server.Addr()))
	}
	return started
}

// admit tells all servers who comes, and replicas to come as themselves. They know it when they
// start again, too.
func (f *field) admit() {
	f.T.Helper()
	user, password, _ := strings.Cut(login, ":")
	names := []string{user}
	for _, server := range f.servers {
		names = append(names, server.Addr())
	}
	for _, server := range f.servers {
		for _, name := range names {
			chaostest.Do(f.T, server, "ACL", "SETUSER", name, "on", ">"+password, "~*", "&*", "+@all")
		}
		chaostest.Do(f.T, server, "CONFIG", "SET", "masteruser", server.Addr(), "masterauth", password)
		chaostest.Do(f.T, server, "CONFIG", "REWRITE")
	}
	chaostest.Do(f.T, f.servers[0], "CLIENT", "KILL", "TYPE", "replica")
	f.follow()
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
	f.Await(seen*incrementBytes, f.Processes...)
}

// moment is now by the clock of the machine that runs monotonically, in nanoseconds. It is one for
// all processes.
func moment() int64 {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		panic(err)
	}
	return now.Nano()
}
