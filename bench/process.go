package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"time"
)

// child is a process that takes part in a measurement: a server, a generator of load, a
// redis-server. On Linux it dies with this one.
type child struct {
	cmd   *exec.Cmd
	stdin io.Closer
	out   io.Closer
	lines *bufio.Reader // of what it prints
	done  chan struct{}
	err   error // how it ended; to be read after done
}

// childVariable tells a test's binary that it is to be this program instead.
const childVariable = "BENCH_CHILD"

// again starts a command of this program.
func again(ctx context.Context, args ...string) (*child, error) {
	binary, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return start(ctx, binary, args...)
}

// start starts a program. Its errors go to where ours go.
func start(ctx context.Context, binary string, args ...string) (*child, error) {
	cmd := exec.CommandContext(ctx, binary, args...) //nolint:gosec // this program itself, or the redis-server that its user names
	cmd.Env = append(os.Environ(), childVariable+"=1")
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd.Stdout = write
	c := &child{cmd: cmd, stdin: stdin, out: read, lines: bufio.NewReader(read), done: make(chan struct{})}
	err = c.start()
	_ = write.Close() // the child has its own
	if err != nil {
		return nil, errors.Join(err, read.Close())
	}
	return c, nil
}

// start keeps the thread that starts the process until it has ended: what dies with its parent dies
// with the thread that made it.
func (c *child) start() error {
	dieWithParent(c.cmd)
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := c.cmd.Start()
		started <- err
		if err == nil {
			c.err = c.cmd.Wait()
			close(c.done)
		}
	}()
	return <-started
}

// line returns the next line that the process prints.
func (c *child) line() (string, error) {
	line, err := c.lines.ReadString('\n')
	if err != nil {
		return "", fmt.Errorf("%s %v ended early: %w", c.cmd.Path, c.cmd.Args[1:2], err)
	}
	return line[:len(line)-1], nil
}

// stop ends a process that ends when its standard input does, and tells how it ended.
func (c *child) stop() error {
	_ = c.stdin.Close()
	defer c.end()
	select {
	case <-c.done:
		return c.err
	case <-time.After(10 * time.Second):
		return fmt.Errorf("%v does not end", c.cmd.Args)
	}
}

// end kills the process and returns when it is gone. What it printed cannot be read any more.
func (c *child) end() {
	_ = c.stdin.Close()
	_ = c.cmd.Process.Kill()
	<-c.done
	_ = c.out.Close()
}
