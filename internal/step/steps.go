//go:build steps

package step

import (
	"sync"
	"sync/atomic"
)

var hook atomic.Pointer[func(name string)]

// At is a point: it calls the hook of the test, if there is one.
func At(name string) {
	if h := hook.Load(); h != nil {
		(*h)(name)
	}
}

// Hook has all points of the process call a function from now on; nil = none.
func Hook(at func(name string)) {
	if at == nil {
		hook.Store(nil)
		return
	}
	hook.Store(&at)
}

// Mutex is a mutex that is held at points. A goroutine that waits for it waits for a channel, which
// lets the time of a synctest bubble go on, and is at a point when it could have the mutex.
type Mutex struct {
	held    sync.Mutex
	mu      sync.Mutex // guards what follows, and the release of held
	waiting []chan struct{}
}

// Lock takes the mutex.
func (m *Mutex) Lock() {
	for !m.held.TryLock() {
		m.mu.Lock()
		if m.held.TryLock() {
			m.mu.Unlock()
			return
		}
		free := make(chan struct{})
		m.waiting = append(m.waiting, free)
		m.mu.Unlock()
		<-free
		At("step: a mutex is free")
	}
}

// Unlock gives it back.
func (m *Mutex) Unlock() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.held.Unlock()
	for _, free := range m.waiting {
		close(free)
	}
	m.waiting = nil
}
