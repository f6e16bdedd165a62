package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/coatcheck/coatcheck/idempotency"
)

// loadResult is what the generator saw. Times are in microseconds.
type loadResult struct {
	Sent      int     `json:"sent"`     // requests in all, those before the measured span included
	Measured  int     `json:"measured"` // requests that ended within it
	Seconds   float64 `json:"seconds"`  // its length
	P50       float64 `json:"p50_us"`
	P99       float64 `json:"p99_us"`
	Processor float64 `json:"processor_us"` // processor time of the generator within it
}

// loadCommand is the generator of load: a process of its own, so that it shares no Go runtime with
// a server. Each connection is one goroutine that writes bytes prepared beforehand, with nothing
// but the key changed, and reads the answer's status, length and replay mark, nothing else. It runs
// on one processor at a time and never collects garbage. It prints a line when the measured span
// begins, and its result.
func loadCommand(ctx context.Context, args []string, _ io.Reader, stdout io.Writer) error {
	flags := flag.NewFlagSet("load", flag.ContinueOnError)
	var g generator
	flags.StringVar(&g.addr, "addr", "", "address of the server")
	flags.IntVar(&g.conns, "conns", 1, "connections, each with one request at a time")
	flags.DurationVar(&g.warm, "warm", 200*time.Millisecond, "how long to go on before the measured span")
	flags.DurationVar(&g.span, "span", time.Second, "the measured span")
	flags.BoolVar(&g.replay, "replay", false, "one key for each connection, again and again, instead of a new one for each request")
	tokens := flags.String("tokens", "", "where the server issues tokens; without it requests have keys of their own")
	flags.BoolVar(&g.plain, "plain", false, "the server does not guard: nothing is ever replayed")
	if err := parse(flags, args); err != nil {
		return err
	}
	if *tokens != "" {
		if err := g.take(ctx, *tokens); err != nil {
			return err
		}
	}
	runtime.GOMAXPROCS(1)
	debug.SetGCPercent(-1)
	result, err := g.run(ctx, func() { fmt.Fprintln(stdout, "measuring") })
	if err != nil {
		return err
	}
	return json.NewEncoder(stdout).Encode(result)
}

// generator sends one payment after the other on each of its connections.
type generator struct {
	addr          string
	conns         int
	warm, span    time.Duration
	replay, plain bool

	from, until time.Time // the measured span
	salt        string    // makes the keys of this run unlike those of any other
	tokens      []string  // in the place of keys
}

const requestBody = `{"amount":1299,"currency":"EUR","to":"acct_1"}`

// keyDigits is how many characters of a key count.
const keyDigits = 12

// Tokens are issued for more requests a second than any server here answers, of one connection and
// of many.
const (
	mostOfOne  = 20_000
	mostOfMany = 80_000
)

// take has tokens issued for the whole run.
func (g *generator) take(ctx context.Context, control string) error {
	most := mostOfMany
	if g.conns == 1 {
		most = mostOfOne
	}
	n := g.conns
	if !g.replay {
		n += int(float64(most) * (g.warm + g.span).Seconds())
	}
	answer, err := ask(ctx, control, "/tokens?n="+strconv.Itoa(n))
	g.tokens = strings.Split(string(answer), "\n")
	if err == nil && len(g.tokens) != n {
		err = fmt.Errorf("%d tokens were issued, want %d", len(g.tokens), n)
	}
	return err
}

func (g *generator) run(ctx context.Context, measuring func()) (loadResult, error) {
	g.salt = secretOf()
	return g.drive(ctx, g.driver, func(ctx context.Context, d *driver) error { return d.run(ctx) }, measuring)
}

// drive connects, has each connection send requests, and sums up the measured span.
func (g *generator) drive(
	ctx context.Context, driverOf func(net.Conn, int) *driver, send func(context.Context, *driver) error, measuring func(),
) (loadResult, error) {
	drivers := make([]*driver, g.conns)
	for i := range drivers {
		var dialer net.Dialer
		conn, err := dialer.DialContext(ctx, "tcp", g.addr)
		if err != nil {
			return loadResult{}, err
		}
		defer conn.Close()
		drivers[i] = driverOf(conn, i)
	}
	g.from = time.Now().Add(g.warm)
	g.until = g.from.Add(g.span)
	errs := make([]error, len(drivers))
	var running sync.WaitGroup
	for i, driver := range drivers {
		running.Go(func() { errs[i] = send(ctx, driver) })
	}
	time.Sleep(g.warm)
	measuring()
	before := processorTime()
	time.Sleep(time.Until(g.until))
	used := processorTime() - before
	running.Wait()
	result := g.sum(drivers)
	result.Processor = used
	return result, errors.Join(errs...)
}

func (g *generator) sum(drivers []*driver) loadResult {
	result := loadResult{Seconds: g.span.Seconds()}
	var took []time.Duration
	for _, driver := range drivers {
		result.Sent += driver.sent
		took = append(took, driver.took...)
	}
	slices.Sort(took)
	result.Measured = len(took)
	result.P50, result.P99 = percentile(took, 0.50), percentile(took, 0.99)
	return result
}

// percentile is a percentile of sorted durations, in microseconds.
func percentile(sorted []time.Duration, p float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return float64(sorted[min(int(p*float64(len(sorted))), len(sorted)-1)].Nanoseconds()) / 1000
}

// driver is one connection.
type driver struct {
	*generator

	conn    net.Conn
	index   int
	request []byte
	key     []byte // the part of the request that changes
	buffer  []byte
	sent    int
	took    []time.Duration
}

func (g *generator) driver(conn net.Conn, index int) *driver {
	d := &driver{generator: g, conn: conn, index: index, buffer: make([]byte, 8<<10), took: make([]time.Duration, 0, 1<<16)}
	zeros := "000000000000"[:keyDigits]
	header, name := keyHeader, g.salt+"-"+zeros
	if g.tokens != nil {
		header, name = idempotency.TokenHeader, g.tokens[0]
		zeros = name
	}
	d.request = []byte("POST /pay HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: " +
		strconv.Itoa(len(requestBody)) +
		"\r\n" + header + ": " + name + "\r\n\r\n" + requestBody)
	at := bytes.Index(d.request, []byte(zeros+"\r\n"))
	d.key = d.request[at : at+len(zeros)]
	return d
}

// run sends requests until the measured span has ended.
func (d *driver) run(ctx context.Context) error {
	for ctx.Err() == nil {
		if err := d.nextKey(); err != nil {
			return err
		}
		begun := time.Now()
		if !begun.Before(d.until) {
			return nil
		}
		if _, err := d.conn.Write(d.request); err != nil {
			return err
		}
		answer, err := d.answer()
		if err != nil {
			return err
		}
		ended := time.Now()
		if err := d.check(answer); err != nil {
			return err
		}
		d.sent++
		if ended.After(d.from) && ended.Before(d.until) {
			d.took = append(d.took, ended.Sub(begun))
		}
	}
	return ctx.Err()
}

// nextKey patches the next key into the request: the number of the connection and that of the
// request; or the next token.
func (d *driver) nextKey() error {
	at := d.sent*d.conns + d.index
	switch {
	case d.replay && d.sent > 0:
	case d.tokens == nil:
		digits(d.key, at)
	case at >= len(d.tokens):
		return fmt.Errorf("all %d tokens are used", len(d.tokens))
	default:
		copy(d.key, d.tokens[at])
	}
	return nil
}

var (
	headEnd     = []byte("\r\n\r\n")
	lengthName  = []byte("\r\nContent-Length: ")
	created     = []byte("HTTP/1.1 201 ")
	replayMark  = []byte("\r\nIdempotent-Replayed: true\r\n")
	errTooLarge = errors.New("the answer does not fit")
)

// answer reads one answer and returns its head.
func (d *driver) answer() ([]byte, error) {
	read, want := 0, 0
	for want == 0 || read < want {
		if read == len(d.buffer) {
			return nil, errTooLarge
		}
		n, err := d.conn.Read(d.buffer[read:])
		if err != nil {
			return nil, err
		}
		read += n
		if want == 0 {
			want = answerLength(d.buffer[:read])
		}
	}
	if read > want {
		return nil, fmt.Errorf("%d bytes after the answer", read-want)
	}
	return d.buffer[:bytes.Index(d.buffer, headEnd)+2], nil
}

// answerLength is how long the answer is that begins like this, 0 if its head is not there yet.
func answerLength(begin []byte) int {
	head := bytes.Index(begin, headEnd)
	if head < 0 {
		return 0
	}
	length, body := bytes.Index(begin[:head], lengthName), 0
	if length < 0 {
		return head + len(headEnd)
	}
	for _, digit := range begin[length+len(lengthName) : head] {
		if digit < '0' || digit > '9' {
			break
		}
		body = 10*body + int(digit-'0')
	}
	return head + len(headEnd) + body
}

// check refuses an answer that is not the one that this request has to get: a figure for wrong
// answers is none.
func (d *driver) check(head []byte) error {
	if !bytes.HasPrefix(head, created) {
		return fmt.Errorf("answered %q instead of 201", head)
	}
	want := d.replay && !d.plain && d.sent > 0
	if bytes.Contains(head, replayMark) != want {
		return fmt.Errorf("answered %q: replayed has to be %v", head, want)
	}
	return nil
}
