package embedded

import (
	"bufio"
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/alicebob/miniredis/v2/server"
)

// maxUnread is how many bytes a connection that has asked for messages may leave unread before it
// is closed. Replies are bounded by what the client asks for before it reads.
const maxUnread = 64 << 20

// keptBuffer is the size in bytes up to which a buffer is reused.
const keptBuffer = 64 << 10

// conn is one connection. Commands are run by the goroutine that reads them; what miniredis writes
// is kept until a second goroutine sends it. So neither a slow reader nor a message sent within a
// script stops other connections.
type conn struct {
	store      *Store
	pipe       net.Conn
	peer       *server.Peer
	subscribed atomic.Bool // it has asked for messages

	mu     sync.Mutex
	more   *sync.Cond
	unsent []byte
	ended  bool // nothing will be added
}

func newConnLocked(s *Store, pipe net.Conn) *conn {
	c := &conn{store: s, pipe: pipe}
	c.more = sync.NewCond(&c.mu)
	c.peer = server.NewPeer(bufio.NewWriter(c))
	return c
}

// serve runs until the client or the store ends the connection.
func (c *conn) serve() {
	defer c.store.readers.Done()
	var sender sync.WaitGroup
	sender.Go(c.send)
	c.receive()
	c.end()
	sender.Wait()
	c.store.forget(c)
}

func (c *conn) receive() {
	in := bufio.NewReader(c.pipe)
	for {
		args, err := readCommand(in)
		if errors.Is(err, errSyntax) {
			c.peer.WriteError("ERR Protocol error: " + err.Error())
			c.peer.Flush()
		}
		if err != nil {
			return
		}
		if name := strings.ToUpper(args[0]); name == "SUBSCRIBE" || name == "PSUBSCRIBE" {
			c.subscribed.Store(true)
		}
		c.store.do(c.peer, args)
		c.peer.Flush()
		if c.peer.Closed() {
			return
		}
	}
}

// Write takes miniredis's output for the client. It never waits: miniredis may hold its lock.
func (c *conn) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.ended:
	case c.subscribed.Load() && len(c.unsent) > maxUnread:
		c.store.logger.Warn("connection closed: it does not read what it is sent", "unread_bytes", len(c.unsent))
		c.endLocked()
		c.pipe.Close()
	default:
		c.unsent = append(c.unsent, p...)
		c.more.Signal()
	}
	return len(p), nil
}

func (c *conn) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.endLocked()
}

func (c *conn) endLocked() {
	c.ended = true
	c.more.Signal()
}

func (c *conn) send() {
	defer c.pipe.Close()
	var sent []byte
	for {
		batch := c.take(sent[:0])
		if len(batch) == 0 {
			return
		}
		if _, err := c.pipe.Write(batch); err != nil {
			return
		}
		if sent = batch; cap(sent) > keptBuffer {
			sent = nil
		}
	}
}

// take waits for something to send, and leaves an empty buffer. Nothing means that no more comes.
func (c *conn) take(empty []byte) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.unsent) == 0 && !c.ended {
		c.more.Wait()
	}
	batch := c.unsent
	c.unsent = empty
	return batch
}

// forget clears miniredis's state of a connection.
func (s *Store) forget(c *conn) {
	s.exec.Lock()
	defer s.exec.Unlock()
	if c.subscribed.Load() {
		s.dispatchLocked(c.peer, []string{"UNSUBSCRIBE"})
		s.dispatchLocked(c.peer, []string{"PUNSUBSCRIBE"})
	}
	delete(s.conns, c)
}
