package lock

import (
	"bytes"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/expect"
	"github.com/coatcheck/coatcheck/internal/redistest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/scripts"
)

// link is the way to one server of a quorum. The fates are for requests that run a script.
type link struct {
	*redistest.Proxy

	fate  atomic.Int32 // redistest.Fate
	raise atomic.Int32 // of lock_raise, if it is not Pass
}

func connect(t testing.TB, server *redistest.Server) *link {
	t.Helper()
	l := &link{}
	l.Proxy = redistest.StartProxy(t, server.Addr(), func(request []byte) (redistest.Fate, func()) {
		if raise := l.raise.Load(); raise != int32(redistest.Pass) && bytes.Contains(request, []byte(scripts.LockRaise.SHA)) {
			return redistest.Fate(raise), nil
		}
		if !bytes.Contains(request, []byte("\r\neval")) {
			return redistest.Pass, nil
		}
		return redistest.Fate(l.fate.Load()), nil
	})
	return l
}

func (l *link) set(fate redistest.Fate)      { l.fate.Store(int32(fate)) }
func (l *link) setRaise(fate redistest.Fate) { l.raise.Store(int32(fate)) }

// answerLimit is how long a server of a quorum may take to answer, or a tenth of the lock's TTL if
// that is less: a busy machine delays processes.
const answerLimit = 3 * time.Second

// careful is for servers that lose leases.
var careful = Config{LongestTTL: 6 * time.Second, Skew: 10 * time.Millisecond, Window: MinTTL}

// field is some servers and the links to them.
type field struct {
	servers []*redistest.Server
	links   []*link
}

func startField(t testing.TB, n int) *field {
	t.Helper()
	f := &field{}
	for range n {
		server := redistest.Start(t)
		f.servers = append(f.servers, server)
		f.links = append(f.links, connect(t, server))
	}
	return f
}

func (f *field) urls() (urls []string) {
	for _, server := range f.servers {
		urls = append(urls, server.URL())
	}
	return urls
}

func (f *field) linkURLs() (urls []string) {
	for _, link := range f.links {
		urls = append(urls, link.URL())
	}
	return urls
}

// near are the locks of a process that goes to the servers directly.
func (f *field) near(t testing.TB, config Config) *QuorumLocks {
	t.Helper()
	return openQuorum(t, f.urls(), redisstore.Config{Timeout: answerLimit}, config)
}

// far are the locks of a process that goes through the links.
func (f *field) far(t testing.TB, config Config) *QuorumLocks {
	t.Helper()
	return openQuorum(t, f.linkURLs(), redisstore.Config{Timeout: answerLimit}, config)
}

// openQuorum opens locks that are closed with the test. Tests that are not about losses use
// GrantAfterLoss.
func openQuorum(t testing.TB, urls []string, store redisstore.Config, config Config) *QuorumLocks {
	t.Helper()
	locks, err := OpenQuorum(t.Context(), urls, store, config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := locks.Close(); err != nil {
			t.Error(err)
		}
	})
	return locks
}

// grantAtOnce is for servers that lose nothing.
var grantAtOnce = Config{AfterLoss: GrantAfterLoss, Owner: "tester", Window: MinTTL}

// ready waits until every single server grants, as if all had been in use for longer than any
// lease.
func (f *field) ready(t *testing.T, locks *QuorumLocks) {
	t.Helper()
	for i, each := range locks.each {
		if locks.config.AfterLoss == WaitAfterLoss {
			trust(t, each, f.servers[i])
		}
	}
	expect.Eventually(t, "every server grants", func() bool {
		all := true // each is asked, so that all of them wait at the same time
		for _, each := range locks.each {
			grant, err := each.TryGrant(t.Context(), "ready", Request{TTL: MinTTL})
			all = err == nil && each.Release(t.Context(), grant) == nil && all
		}
		return all
	})
}

func mustQuorum(t testing.TB, locks *QuorumLocks, name string, request Request) *Lock {
	t.Helper()
	lock, err := locks.TryAcquire(t.Context(), name, request)
	if err != nil {
		t.Fatal(err)
	}
	return lock
}

// has reports whether the server holds a lock for a token.
func has(t testing.TB, locks *Locks, name, token string) bool {
	t.Helper()
	var reply scripts.Reply
	expect.Eventually(t, "the server answers", func() bool { // its restart may cut this
		var err error
		reply, err = locks.run(t.Context(), redisScript("return {'ok', redis.call('GET', KEYS[1]) or ''}"), locks.keys(name)[:1])
		return err == nil
	})
	return len(reply[1]) >= 22 && reply[1][:22] == token
}

// everywhere waits until all servers hold the lock for its token, with its fence at least.
func everywhere(t testing.TB, locks *QuorumLocks, lock *Lock) {
	t.Helper()
	for _, each := range locks.each {
		expect.Eventually(t, "every server has the lock", func() bool {
			return has(t, each, lock.Name(), lock.Token()) && info(t, each, lock.Name()).Fence >= lock.Fence()
		})
	}
}

// nowhere waits until no server has anything of a name but its fence.
func nowhere(t testing.TB, locks *QuorumLocks, name string) {
	t.Helper()
	for _, each := range locks.each {
		free(t, each, name)
	}
}

// free waits until one server has nothing of a name: the release of a quorum's lock waits for a
// majority alone.
func free(t testing.TB, each *Locks, name string) {
	t.Helper()
	expect.Eventually(t, "the server has nothing of the lock", func() bool {
		got := info(t, each, name)
		return got.Mode == "" && got.Queue == 0
	})
}

// wantOnly fails the test unless the error is of that class and of no other.
func wantOnly(t testing.TB, err, class error) {
	t.Helper()
	for _, other := range []error{redisstore.ErrRefused, redisstore.ErrLost, redisstore.ErrUnknownOutcome} {
		if errors.Is(err, other) != errors.Is(class, other) {
			t.Fatalf("got %v, want %v", err, class)
		}
	}
	wantIs(t, err, class)
}
