package redisstore_test

import (
	"bytes"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/testing/redistest"
)

// fault is what a proxy does to a request that runs a script.
type fault int

const (
	pass      fault = iota
	cutBefore       // the connection is cut before the request is forwarded
	// the request is forwarded and answered; the connection is cut before the answer is.
	cutAfter
	swallow // nothing is forwarded, and the connection stays
	delay   // as cutAfter, but it is forwarded when the test says so
)

var fates = map[fault]redistest.Fate{
	pass: redistest.Pass, cutBefore: redistest.CutBefore, cutAfter: redistest.CutAfter, swallow: redistest.Swallow, delay: redistest.CutAfter,
}

// proxy stands between a store and its server. Every fault is for the requests that run a script;
// the rest passes.
type proxy struct {
	*redistest.Proxy

	fault atomic.Int32
	runs  atomic.Int32  // requests that ran a script, as they came
	later chan struct{} // closed when what was delayed may go on
}

// between starts a proxy to an address, and ends it with the test.
func between(t testing.TB, target string) *proxy {
	t.Helper()
	p := &proxy{later: make(chan struct{})}
	p.Proxy = redistest.StartProxy(t, target, func(request []byte) (redistest.Fate, func()) {
		if !bytes.Contains(request, []byte("\r\neval")) { // go-redis writes a request at once
			return redistest.Pass, nil
		}
		p.runs.Add(1)
		which := fault(p.fault.Load())
		if which == delay {
			select {
			case <-p.later:
			case <-time.After(patience):
				t.Error("a delayed request was never let through")
			}
		}
		return fates[which], nil
	})
	return p
}

func (p *proxy) set(f fault) { p.fault.Store(int32(f)) }
