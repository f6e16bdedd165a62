package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
)

// The ways in which each caller hands its request to one goroutine, and waits for it as callers of
// package counter wait: what remains of a process's counting with nothing around it.
const (
	handedOver = "handed over, without Redis" // the goroutine counts itself
	// It asks Redis over one bare connection, for all that wait at once: by one INCRBY if there is
	// one key, else by an INCR for each.
	handedBare = "handed over, a bare connection"
)

var leastIncrs = []string{handedOver, handedBare}

// handing is a call that waits for its number.
type handing struct {
	name string
	got  int64
	done chan struct{} // has room for the one message of the end
}

// handOver is the goroutine and those that wait for it.
type handOver struct {
	mu      sync.Mutex
	waiting []*handing
	wake    chan struct{} // has room for one: sent by the first that waits
	reused  sync.Pool
	count   func([]*handing) error // gives all that waited their numbers
	ended   chan error
}

func newHandOver(count func([]*handing) error) *handOver {
	h := &handOver{wake: make(chan struct{}, 1), count: count, ended: make(chan error, 1)}
	h.reused.New = func() any { return &handing{done: make(chan struct{}, 1)} }
	go func() { h.ended <- h.run() }()
	return h
}

func (h *handOver) incr(ctx context.Context, name string) (int64, error) {
	own, _ := h.reused.Get().(*handing)
	own.name = name
	h.mu.Lock()
	h.waiting = append(h.waiting, own)
	first := len(h.waiting) == 1
	h.mu.Unlock()
	if first {
		h.wake <- struct{}{}
	}
	select {
	case <-own.done:
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	got := own.got
	h.reused.Put(own)
	if got == 0 {
		return 0, errNotCounted
	}
	return got, nil
}

var errNotCounted = errors.New("not counted; closing the way says why")

// run counts for those that wait, until close.
func (h *handOver) run() (fault error) {
	var taken []*handing
	for range h.wake {
		h.mu.Lock()
		taken, h.waiting = h.waiting, taken[:0]
		h.mu.Unlock()
		if fault == nil {
			fault = h.count(taken)
		}
		for _, one := range taken {
			if fault != nil {
				one.got = 0
			}
			one.done <- struct{}{}
		}
	}
	return fault
}

func (h *handOver) close() error {
	close(h.wake)
	return <-h.ended
}

// openHandOver counts in this process, all names together.
func openHandOver() (counting, error) {
	var mu sync.Mutex
	var total int64
	h := newHandOver(func(taken []*handing) error {
		mu.Lock()
		defer mu.Unlock()
		for _, one := range taken {
			total++
			one.got = total
		}
		return nil
	})
	return counting{incr: h.incr, total: func() int64 { mu.Lock(); defer mu.Unlock(); return total }, close: h.close}, nil
}

// openBareHandOver counts in Redis.
func openBareHandOver(ctx context.Context, place counterPlace, oneKey bool) (counting, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", place.addr)
	if err != nil {
		return counting{}, err
	}
	replies := bufio.NewReader(conn)
	key := func(name string) string { return "bare" + name }
	var words []byte
	// sum reads a reply, which is :, a number and the end of a line.
	sum := func() (int64, error) {
		line, err := replies.ReadSlice('\n')
		if err != nil {
			return 0, err
		}
		return number(line[1 : len(line)-2])
	}
	count := func(taken []*handing) error {
		words = words[:0]
		if oneKey {
			words = fmt.Appendf(words, "INCRBY %s %d\r\n", key(taken[0].name), len(taken))
		} else {
			for _, one := range taken {
				words = append(append(append(words, "INCR bare"...), one.name...), "\r\n"...)
			}
		}
		if _, err := conn.Write(words); err != nil {
			return err
		}
		if oneKey {
			last, err := sum()
			for i, one := range taken {
				one.got = last - int64(len(taken)-1-i)
			}
			return err
		}
		for _, one := range taken {
			var err error
			if one.got, err = sum(); err != nil {
				return err
			}
		}
		return nil
	}
	h := newHandOver(count)
	return counting{incr: h.incr, key: key, close: func() error { return errors.Join(h.close(), conn.Close()) }}, nil
}
