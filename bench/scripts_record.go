package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/scripts"
)

// recorder keeps the calls of scripts that stores send to Redis, so that they can be sent again. It
// is safe for concurrent use.
type recorder struct {
	mu    sync.Mutex
	texts map[string]string // of scripts, by SHA-1
	seen  map[string]bool   // calls: a script that Redis did not know is sent twice
	calls []scriptCall
}

func newRecorder() *recorder { return &recorder{texts: map[string]string{}, seen: map[string]bool{}} }

// scriptCall is a call of a script, as a command: EVALSHA, the hash, the number of keys, the keys
// and the arguments.
type scriptCall []any

func (c scriptCall) sha() string { return c[1].(string) }

// key is the first key.
func (c scriptCall) key() string { return c[3].(string) }

// open returns a store on the server whose calls are recorded.
func (r *recorder) open(server *redisServer) (*redisstore.Store, error) {
	options := *server.Options()
	options.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &recordedConn{Conn: conn, recorder: r}, nil
	}
	client := redis.NewClient(&options)
	defer client.Close()
	return redisstore.From(client, redisstore.Config{Timeout: patience})
}

// recordedConn is a connection whose commands are recorded.
type recordedConn struct {
	net.Conn

	recorder *recorder
	sent     bytes.Buffer // without whole commands
}

// Write sends commands.
func (c *recordedConn) Write(text []byte) (int, error) {
	c.sent.Write(text)
	for {
		words, size, err := commandIn(c.sent.Bytes())
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return c.Conn.Write(text)
		}
		if err != nil {
			return 0, err
		}
		c.recorder.add(words)
		c.sent.Next(size)
	}
}

// commandIn reads the first command of a text, and its length. The error is io.ErrUnexpectedEOF
// while a part is missing.
func commandIn(text []byte) (words []string, size int, err error) {
	from := bytes.NewReader(text)
	reader := bufio.NewReader(from)
	n, err := lengthIn(reader, '*')
	for range n {
		var length int
		if length, err = lengthIn(reader, '$'); err != nil {
			break
		}
		word := make([]byte, length+len("\r\n"))
		if _, err = io.ReadFull(reader, word); err != nil {
			break
		}
		words = append(words, string(word[:length]))
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return words, len(text) - from.Len() - reader.Buffered(), err
}

// lengthIn reads a line with a number behind a mark.
func lengthIn(reader *bufio.Reader, mark byte) (int, error) {
	line, err := reader.ReadString('\n')
	if err != nil {
		return 0, err
	}
	if line[0] != mark {
		return 0, fmt.Errorf("a command has the line %q, want one that begins with %c", line, mark)
	}
	return strconv.Atoi(strings.TrimSpace(line[1:]))
}

// add keeps a command if it calls a script.
func (r *recorder) add(words []string) {
	name := strings.ToLower(words[0])
	if name != "evalsha" && name != "eval" {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	sha := words[1]
	if name == "eval" {
		sum := sha1.Sum([]byte(words[1])) //nolint:gosec // as Redis names scripts
		sha = hex.EncodeToString(sum[:])
		r.texts[sha] = words[1]
	}
	call := scriptCall{"evalsha", sha}
	for _, word := range words[2:] {
		call = append(call, word)
	}
	if once := fmt.Sprint(call...); !r.seen[once] {
		r.seen[once] = true
		r.calls = append(r.calls, call)
	}
}

// take returns the recorded calls of a script, also where it runs behind another library's, in the
// order in which they were sent, and forgets them.
func (r *recorder) take(script *scripts.Script) (taken []scriptCall) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var rest []scriptCall
	end := script.Text().Source[len(script.Text().Source)*9/10:] // the other's text comes before it
	for _, call := range r.calls {
		if call.sha() == script.Text().SHA || strings.HasSuffix(r.texts[call.sha()], end) {
			taken = append(taken, call)
		} else {
			rest = append(rest, call)
		}
	}
	r.calls = rest
	return taken
}

// forget forgets all calls.
func (r *recorder) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls, r.seen = nil, map[string]bool{}
}
