package redistest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
)

// Space is one test's part of a Redis that all tests of the binary share. The test keeps to keys
// that begin with its prefix, and leaves the servers as they are: a test that counts all keys,
// flushes, configures or stops a server starts its own.
type Space struct {
	URL     string
	Prefix  string // no other test of the binary has it: "t1:", "t2:" and so on
	servers []*Server
}

// Shared returns a space on a redis-server that is started for the first test that asks for it and
// ends with the test binary.
func Shared(t testing.TB) Space {
	t.Helper()
	return spaceOn(t, sharedServer)
}

// SharedCluster is [Shared] on a cluster of three masters.
func SharedCluster(t testing.TB) Space {
	t.Helper()
	return spaceOn(t, sharedCluster)
}

var (
	sharedServer  = forBinary(func(t testing.TB) *Server { return Start(t) })
	sharedCluster = forBinary(func(t testing.TB) *Cluster { return StartCluster(t, 3, 0) })
	spaces        atomic.Int64
)

// shared is a Redis of one server or of several.
type shared interface {
	URL() string
	Nodes() []*Server
}

func spaceOn[R shared](t testing.TB, shared func() (R, error)) Space {
	t.Helper()
	redis, err := shared()
	if err != nil {
		t.Fatalf("%v (it was started for all tests of the binary)", err)
	}
	return Space{URL: redis.URL(), Prefix: "t" + strconv.FormatInt(spaces.Add(1), 10) + ":", servers: redis.Nodes()}
}

// forBinary returns a function that calls start once, with what stands for all tests of the binary,
// and from then on returns its result.
func forBinary[R any](start func(testing.TB) R) func() (R, error) {
	return sync.OnceValues(func() (redis R, err error) {
		all := &binary{failure: errors.New("the start was given up")}
		var done sync.WaitGroup
		done.Go(func() { // Fatalf ends this goroutine
			redis = start(all)
			all.failure = nil
		})
		done.Wait()
		return redis, all.failure
	})
}

// binary is what servers that outlive their test belong to: all tests of the binary. It has no
// cleanup; what the servers hold ends with the process.
type binary struct {
	testing.TB // nil: what is not defined here is not called

	failure error
}

func (*binary) Helper()                  {}
func (*binary) Cleanup(func())           {}
func (*binary) Context() context.Context { return context.Background() }

// TempDir makes a directory that proctest.StartTied removes.
func (b *binary) TempDir() string {
	dir, err := os.MkdirTemp("", "redistest")
	if err != nil {
		b.Fatalf("%v", err)
	}
	return dir
}

func (b *binary) Fatalf(format string, args ...any) {
	b.failure = fmt.Errorf(format, args...)
	runtime.Goexit()
}
