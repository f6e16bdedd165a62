package workerlease_test

import (
	"bytes"
	"sync/atomic"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/redistest"
)

// fault is a link to a server on which scripts meet a fate, so many of them.
type fault struct {
	*redistest.Proxy

	fate atomic.Int32
	left atomic.Int64
}

func newFault(t testing.TB, server *redistest.Server) *fault {
	f := &fault{}
	f.Proxy = redistest.StartProxy(t, server.Addr(), func(request []byte) (redistest.Fate, func()) {
		if !bytes.Contains(request, []byte("\r\neval")) || f.left.Add(-1) < 0 {
			return redistest.Pass, nil
		}
		return redistest.Fate(f.fate.Load()), nil
	})
	return f
}

func (f *fault) set(fate redistest.Fate, times int64) {
	f.fate.Store(int32(fate))
	f.left.Store(times)
}
