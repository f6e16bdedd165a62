package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"runtime/debug"
	"time"
)

// getCommand is the generator of load for what only asks: a process of its own, as loadCommand is.
// It prints its result.
func getCommand(ctx context.Context, args []string, _ io.Reader, stdout io.Writer) error {
	flags := flag.NewFlagSet("get", flag.ContinueOnError)
	var g getting
	flags.StringVar(&g.addr, "addr", "", "address of the server")
	flags.StringVar(&g.path, "path", "/", "what to get; with many keys its last four digits change")
	flags.IntVar(&g.keys, "keys", 1, "how many keys, 1 to 10000")
	flags.IntVar(&g.conns, "conns", 1, "connections, each with one request at a time")
	flags.DurationVar(&g.warm, "warm", 200*time.Millisecond, "how long to go on before the measured span")
	flags.DurationVar(&g.span, "span", time.Second, "the measured span")
	if err := parse(flags, args); err != nil {
		return err
	}
	runtime.GOMAXPROCS(1)
	debug.SetGCPercent(-1)
	result, err := g.run(ctx)
	if err != nil {
		return err
	}
	return json.NewEncoder(stdout).Encode(result)
}

// getting sends one GET after the other on each of its connections.
type getting struct {
	generator

	path string
	keys int
}

func (g *getting) run(ctx context.Context) (loadResult, error) {
	return g.drive(ctx, g.asking, func(ctx context.Context, d *driver) error { return g.ask(ctx, d) }, func() {})
}

func (g *getting) asking(conn net.Conn, index int) *driver {
	d := &driver{generator: &g.generator, conn: conn, index: index, buffer: make([]byte, 8<<10), took: make([]time.Duration, 0, 1<<16)}
	d.request = []byte("GET " + g.path + " HTTP/1.1\r\nHost: localhost\r\n\r\n")
	if g.keys > 1 {
		end := len("GET ") + len(g.path)
		d.key = d.request[end-4 : end]
	}
	return d
}

// ask asks until the measured span has ended.
func (g *getting) ask(ctx context.Context, d *driver) error {
	last := int64(0)
	lot := rand.New(rand.NewPCG(uint64(d.index), 1)) //nolint:gosec // it spreads requests
	for ctx.Err() == nil {
		if d.key != nil {
			digits(d.key, lot.IntN(g.keys))
		}
		begun := time.Now()
		if !begun.Before(d.until) {
			return nil
		}
		if _, err := d.conn.Write(d.request); err != nil {
			return err
		}
		got, err := d.value()
		if err != nil {
			return err
		}
		ended := time.Now()
		if g.keys == 1 && got <= last {
			return fmt.Errorf("%d behind %d", got, last)
		}
		last = got
		d.sent++
		if ended.After(d.from) && ended.Before(d.until) {
			d.took = append(d.took, ended.Sub(begun))
		}
	}
	return ctx.Err()
}

// digits writes a number with leading zeros.
func digits(to []byte, n int) {
	for i := range to {
		to[len(to)-1-i] = "0123456789"[n%10]
		n /= 10
	}
}

var okay = []byte("HTTP/1.1 200 ")

// value reads one answer that has to be 200, and returns the last number in its body.
func (d *driver) value() (int64, error) {
	head, err := d.answer()
	if err != nil {
		return 0, err
	}
	if !bytes.HasPrefix(head, okay) {
		return 0, fmt.Errorf("answered %q", head)
	}
	body := d.buffer[len(head)+2 : answerLength(d.buffer)]
	end := bytes.LastIndexAny(body, "0123456789") + 1
	begin := end
	for begin > 0 && body[begin-1] >= '0' && body[begin-1] <= '9' {
		begin--
	}
	return number(body[begin:end])
}

func number(text []byte) (n int64, err error) {
	for _, digit := range text {
		if digit < '0' || digit > '9' {
			return 0, fmt.Errorf("%q is not a number", text)
		}
		n = 10*n + int64(digit-'0')
	}
	if len(text) == 0 {
		return 0, errors.New("no number in the answer")
	}
	return n, nil
}
