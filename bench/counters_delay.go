package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"runtime"
	"sync"
	"time"
)

// delayCommand is a proxy process that passes on what it gets, either way, a while after it came,
// and keeps nothing back because of it: what comes meanwhile is on its way as well. It prints its
// address and ends when its standard input does.
func delayCommand(ctx context.Context, args []string, stdin io.Reader, stdout io.Writer) error {
	flags := flag.NewFlagSet("delay", flag.ContinueOnError)
	to := flags.String("to", "", "address of the server")
	by := flags.Duration("by", time.Millisecond, "how long each way takes")
	if err := parse(flags, args); err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Fprintln(stdout, listener.Addr())
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	go func() { // ends with the process
		_, _ = io.Copy(io.Discard, stdin)
		cancel()
	}()
	running.Go(func() {
		<-ctx.Done()
		_ = listener.Close()
	})
	there, back := &queue{*by, make(chan piece, 1<<16)}, &queue{*by, make(chan piece, 1<<16)}
	go there.deliver()
	go back.deliver()
	defer close(back.pieces)
	defer close(there.pieces)
	defer running.Wait()
	defer cancel()
	for {
		conn, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		running.Go(func() { delayed(ctx, conn, *to, there, back) })
	}
}

// delayed connects a client with the server until one of them ends, or the context.
func delayed(ctx context.Context, client net.Conn, to string, there, back *queue) {
	var dialer net.Dialer
	server, err := dialer.DialContext(ctx, "tcp", to)
	if err != nil {
		_ = client.Close()
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	var ways sync.WaitGroup
	ways.Go(func() { there.oneWay(client, server); cancel() })
	ways.Go(func() { back.oneWay(server, client); cancel() })
	<-ctx.Done()
	_ = client.Close()
	_ = server.Close()
	ways.Wait()
}

// queue is what is on its way in one direction, of all connections. All of it takes as long, so
// that what came first is due first.
type queue struct {
	by     time.Duration
	pieces chan piece
}

// piece is bytes on their way.
type piece struct {
	to    net.Conn
	bytes []byte
	due   time.Time
}

// deliver passes pieces on when they are due, until the queue is closed. It sleeps on a thread of
// its own: Go's own timers are up to a millisecond late.
func (q *queue) deliver() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for p := range q.pieces {
		if early := time.Until(p.due); early > 0 {
			doze(early)
		}
		_, _ = p.to.Write(p.bytes) // if it has gone, the reader of its words ends the connection
	}
}

// oneWay takes in what one side says to the other until it ends.
func (q *queue) oneWay(from, to net.Conn) {
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			q.pieces <- piece{to, append([]byte(nil), buffer[:n]...), time.Now().Add(q.by)}
		}
		if err != nil {
			return
		}
	}
}
