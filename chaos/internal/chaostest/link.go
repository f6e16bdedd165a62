package chaostest

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/testing/redistest"
)

// Losses are what becomes of requests on some links. They may be used by several goroutines.
type Losses struct {
	fate atomic.Int64 // of a request that is lost
	left atomic.Int64 // how many more are
	cut  atomic.Bool  // all are
	lost atomic.Int64
}

func (l *Losses) judge([]byte) (redistest.Fate, func()) {
	if l.cut.Load() || l.left.Load() > 0 && l.left.Add(-1) >= 0 {
		l.lost.Add(1)
		return redistest.Fate(l.fate.Load()), nil
	}
	return redistest.Pass, nil
}

// Lose has the next requests lost, so many of them.
func (l *Losses) Lose(n int64, fate redistest.Fate) {
	l.fate.Store(int64(fate))
	l.left.Store(n)
}

// Lost is how many requests were lost.
func (l *Losses) Lost() int64 { return l.lost.Load() }

// Await waits until all that are to be lost are.
func (l *Losses) Await(t testing.TB) {
	t.Helper()
	Await(t, time.Minute, func() string {
		if n := l.left.Load(); n > 0 {
			return fmt.Sprintf("%d requests are to be lost", n)
		}
		return ""
	})
}

// Link starts a link to a server on which requests are lost.
func (l *Losses) Link(t testing.TB, server *redistest.Server) *redistest.Proxy {
	t.Helper()
	return redistest.StartProxy(t, server.Addr(), l.judge)
}

// Link is a link to a server that can be cut.
type Link struct {
	*redistest.Proxy

	losses Losses
}

// NewLink starts a link.
func NewLink(t testing.TB, server *redistest.Server) *Link {
	t.Helper()
	l := &Link{}
	l.Proxy = l.losses.Link(t, server)
	return l
}

// Cut has all that is sent lost, in one way, and new connections not answered.
func (l *Link) Cut(fate redistest.Fate) {
	l.losses.fate.Store(int64(fate))
	l.losses.cut.Store(true)
	l.SetDeaf(true)
}

// Mend has everything come through again.
func (l *Link) Mend() {
	l.losses.cut.Store(false)
	l.SetDeaf(false)
}
