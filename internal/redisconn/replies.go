package redisconn

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strconv"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coatcheck/coatcheck/internal/lazyregexp"
)

// The bounds of a reply, so that none fills the memory. A store's own replies are far smaller.
const (
	maxLine     = 64 << 10  // bytes of a line: a status, an error, a number
	maxBulk     = 512 << 20 // bytes of a string; Redis stores no longer one
	maxElements = 1_000_000 // of all arrays and maps of a reply
	maxDepth    = 16        // of arrays within arrays
)

var errReply = errors.New("the server's reply is beyond every bound of a Redis: is it a Redis?")

// dialer is what a client dials with.
type dialer func(ctx context.Context, network, addr string) (net.Conn, error)

// guarded returns a dialer whose connections bound replies, and hide the password that they send in
// the errors that come back. next nil = go-redis's own dialer.
func guarded(next dialer, secure *tls.Config, timeout time.Duration) dialer {
	if next == nil {
		next = redis.NewDialer(&redis.Options{DialTimeout: timeout, TLSConfig: secure})
	}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		dialed, err := next(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		c := &conn{Conn: dialed}
		// with which go-redis finds a closed connection in its pool
		if below, ok := dialed.(syscall.Conn); ok {
			return struct {
				*conn
				syscall.Conn
			}{c, below}, nil
		}
		return c, nil
	}
}

// conn is a connection to a Redis, or by RESP3 to a sentinel. One goroutine may read while another
// writes; a command that logs in is written while no other goroutine reads.
type conn struct {
	net.Conn
	login    []byte // the command that logs in, as far as it was written
	password []byte // the one in the latest of these commands
	held     []byte // the beginning of a line whose end has not come
	ready    []byte // lines that have come whole after that
	skip     int    // bytes of a string that have not come, with the end of its line
	open     []int  // elements that have not come, of each array that has begun
	elements int    // of the arrays of this reply
}

var loginForm = lazyregexp.New(`^\*\d+\r\n\$\d\r\n(?i:auth|hello)\r\n`)

// Write remembers the commands AUTH and HELLO.
func (c *conn) Write(sent []byte) (int, error) {
	if c.login != nil || loginForm().Match(sent) {
		c.login = append(c.login, sent...)
	}
	return c.Conn.Write(sent)
}

// Read passes whole lines, and strings piece by piece.
func (c *conn) Read(into []byte) (int, error) {
	if c.login != nil { // its reply is read, so it was written whole
		c.password, c.login = passwordIn(c.login), nil
	}
	for len(c.ready) == 0 {
		n, err := c.Conn.Read(into)
		if n == 0 {
			return 0, err
		}
		came, kept := into[:n], len(c.held) > 0
		if kept {
			came = append(c.held, came...)
		}
		whole, err := c.scan(came)
		if err != nil {
			return 0, err
		}
		c.held = bytes.Clone(came[whole:])
		if !kept && whole > 0 {
			return whole, nil
		}
		c.ready = came[:whole]
	}
	n := copy(into, c.ready)
	c.ready = c.ready[n:]
	return n, nil
}

// scan follows the replies in what has come, and returns how much of it can be passed: all but a
// line whose end is missing.
func (c *conn) scan(came []byte) (whole int, err error) {
	for whole < len(came) {
		if c.skip > 0 {
			n := min(c.skip, len(came)-whole)
			whole += n
			if c.skip -= n; c.skip == 0 {
				c.ended()
			}
			continue
		}
		end := bytes.IndexByte(came[whole:], '\n')
		switch {
		case end > maxLine, end < 0 && len(came)-whole > maxLine:
			return 0, errReply
		case end < 0:
			return whole, nil
		}
		if err := c.line(came[whole : whole+end+1]); err != nil {
			return 0, err
		}
		whole += end + 1
	}
	return whole, nil
}

// line follows one line.
func (c *conn) line(line []byte) error {
	size, _ := strconv.Atoi(string(bytes.TrimSpace(line[1:]))) // go-redis reports a wrong one
	switch line[0] {
	case '-':
		hide(line, c.password)
	case '$', '=':
		if size > maxBulk {
			return errReply
		}
		if size >= 0 {
			c.skip = size + len("\r\n")
			return nil
		}
	case '*', '~', '>', '%':
		if line[0] == '%' {
			size = 2 * min(size, maxElements)
		}
		if size > maxElements-c.elements || len(c.open) == maxDepth {
			return errReply
		}
		if size > 0 {
			c.open, c.elements = append(c.open, size), c.elements+size
			return nil
		}
	case '|', '!': // of RESP3, which Redis does not send unasked
		return errReply
	}
	c.ended()
	return nil
}

// ended notes the end of a value, and of each array whose last element it was.
func (c *conn) ended() {
	for last := len(c.open) - 1; last >= 0; last-- {
		if c.open[last]--; c.open[last] > 0 {
			return
		}
		c.open = c.open[:last]
	}
	c.elements = 0
}

// passwordIn returns the password of a command AUTH or HELLO; nil if it has none.
func passwordIn(login []byte) []byte {
	var words [][]byte
	_, rest, _ := bytes.Cut(login, []byte("\r\n"))
	for len(rest) > 0 && rest[0] == '$' {
		head, after, _ := bytes.Cut(rest, []byte("\r\n"))
		size, err := strconv.Atoi(string(head[1:]))
		if err != nil || size+len("\r\n") > len(after) {
			return nil
		}
		words, rest = append(words, after[:size]), after[size+len("\r\n"):]
	}
	for at, word := range words {
		switch {
		case !bytes.EqualFold(word, []byte("auth")):
		case at == 0:
			return words[len(words)-1]
		case at+2 < len(words):
			return words[at+2]
		}
	}
	return nil
}

// A piece of a password counts as the password: Redis cuts a long one. A password as short as
// "ERR" would change what errors mean, and is none.
const piece, shortest = 8, 4

var redirectForm = lazyregexp.New(`^-(MOVED|ASK) \S+ \S+\r\n$`)

// hide replaces the password, and longer pieces of it, in an error. It leaves the error's code, and
// the address of a redirection, which a password could look like.
func hide(line, password []byte) {
	if len(password) < shortest || redirectForm().Match(line) {
		return
	}
	least := min(piece, len(password))
	for at := codeEnd(line); at+least <= len(line); {
		from := bytes.Index(password, line[at:at+least])
		if from < 0 {
			at++
			continue
		}
		for ; from < len(password) && at < len(line) && line[at] == password[from]; from++ {
			line[at] = '*'
			at++
		}
	}
}

// codeEnd returns the length of an error's code: its first word if that is in capitals.
func codeEnd(line []byte) int {
	at := 1
	for at < len(line) && line[at] >= 'A' && line[at] <= 'Z' {
		at++
	}
	if at < len(line) && line[at] == ' ' {
		return at
	}
	return 1
}
