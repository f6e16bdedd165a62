//go:build check && linux

package servers

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/coatcheck/coatcheck/chaos/internal/chaostest"
	"github.com/coatcheck/coatcheck/client"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
)

// startNamed starts a service that finds Redis by a name.
func startNamed(t *testing.T, names *names) *client.Client {
	t.Helper()
	command := exec.CommandContext(context.Background(), names.program, arguments("redis://"+names.host)...)
	command.Env = append(os.Environ(), "COATCHECK_TEST_NAMES="+names.socket.LocalAddr().String())
	return serve(t, command)
}

// names is a server of names that knows one, as a provider's has the name of the master. All
// servers that the name has stood for are at one port, each at an address of its own.
type names struct {
	t       *testing.T
	program string // coatcheck, which asks here
	host    string
	socket  net.PacketConn
	at      atomic.Value // the address, netip.Addr
	port    int
	links   []net.Listener
	done    sync.WaitGroup
}

func startNames(t *testing.T) *names {
	t.Helper()
	socket, err := (&net.ListenConfig{}).ListenPacket(t.Context(), "udp", "127.0.0.1:0")
	expect.NoError(t, "ListenPacket udp", err)
	n := &names{t: t, socket: socket, program: chaostest.BuildIn(t, ".", "github.com/coatcheck/coatcheck/cmd/coatcheck/internal/named")}
	n.done.Go(n.answer)
	t.Cleanup(func() {
		_ = socket.Close()
		for _, link := range n.links {
			_ = link.Close()
		}
		n.done.Wait()
	})
	return n
}

// point has the name stand for a server, at the next address. Answers may be kept for no time.
func (n *names) point(server *redistest.Server) {
	n.t.Helper()
	address := netip.AddrFrom4([4]byte{127, 0, 0, byte(2 + len(n.links))})
	link, err := (&net.ListenConfig{}).Listen(n.t.Context(), "tcp", netip.AddrPortFrom(address, uint16(n.port)).String())
	expect.NoError(n.t, "Listen tcp", err)
	n.port = link.Addr().(*net.TCPAddr).Port
	n.host = fmt.Sprintf("redis.example:%d", n.port)
	n.links = append(n.links, link)
	n.done.Go(func() {
		for {
			conn, err := link.Accept()
			if err != nil {
				return
			}
			n.done.Go(func() { forward(conn, server.Addr()) })
		}
	})
	n.at.Store(address)
}

// forward connects two ends until one of them ends.
func forward(conn net.Conn, to string) {
	defer conn.Close()
	far, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer far.Close()
	go func() {
		_, _ = io.Copy(far, conn)
		_ = far.Close()
	}()
	_, _ = io.Copy(conn, far)
}

func (n *names) answer() {
	buffer := make([]byte, 1500)
	for {
		size, from, err := n.socket.ReadFrom(buffer)
		if err != nil {
			return
		}
		var message dnsmessage.Message
		if message.Unpack(buffer[:size]) != nil || len(message.Questions) != 1 {
			continue
		}
		message.Response, message.Additionals = true, nil
		asked := message.Questions[0]
		if name := strings.TrimSuffix(asked.Name.String(), "."); name != "redis.example" {
			message.RCode = dnsmessage.RCodeNameError
		} else if asked.Type == dnsmessage.TypeA {
			address := n.at.Load().(netip.Addr)
			message.Answers = []dnsmessage.Resource{{
				Header: dnsmessage.ResourceHeader{Name: asked.Name, Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET},
				Body:   &dnsmessage.AResource{A: address.As4()},
			}}
		}
		if packed, err := message.Pack(); err == nil {
			_, _ = n.socket.WriteTo(packed, from)
		}
	}
}

// The name of Redis moves to a replica that was promoted, whose old master follows it, as after a
// failover by a provider; and then to a server that has nothing, as after a mistake.
func TestNameMovesToAnotherServer(t *testing.T) {
	t.Parallel()
	master, replica, stranger := redistest.Start(t), redistest.Start(t), redistest.Start(t)
	chaostest.Replicate(t, master, replica)
	names := startNames(t)
	names.point(master)
	one, other := startNamed(t, names), startNamed(t, names)
	l := startLoad(t, one, other)

	chaostest.Do(t, master, "FAILOVER")
	chaostest.Await(t, time.Minute, func() string {
		info := master.Client().Info(t.Context(), "replication").Val()
		if !strings.Contains(info, "role:slave") {
			return "the master is one still: " + info
		}
		return ""
	})
	names.point(replica)
	l.movesTo(replica, master)

	names.point(stranger)
	replica.Kill()
	l.movesTo(stranger, master)
	l.check(exceptions{lossy: true}, one)
}

// movesTo waits until all goes on, and one server runs scripts and another none.
func (l *load) movesTo(to, from *redistest.Server) {
	l.t.Helper()
	ran := func(server *redistest.Server) (calls int) {
		l.t.Helper()
		for line := range strings.Lines(server.Client().Info(l.t.Context(), "commandstats").Val()) {
			if _, err := fmt.Sscanf(line, "cmdstat_evalsha:calls=%d", &calls); err == nil {
				return calls
			}
		}
		return 0
	}
	chaostest.Await(l.t, time.Minute, func() string {
		there, here := ran(from), ran(to)
		l.goesOn()
		if ran(from) > there || ran(to) == here {
			return "clients are at the old server still"
		}
		return ""
	})
}
