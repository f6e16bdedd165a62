package redistest

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/coatcheck/coatcheck/internal/testing/proctest"
)

const (
	startLimit = 2 * time.Minute // for a server to answer after its start
	// for a server to end after SIGTERM; it may wait 10 s for replicas that lag.
	stopLimit     = 2 * time.Minute
	failoverLimit = 4 * time.Minute // for a failover, even one whose first elections failed
	// for a server to answer one question of ours, while we wait for something.
	queryLimit = 5 * time.Second
	pollEvery  = 2 * time.Millisecond
)

// errPortTaken means that another process has the server's port.
var errPortTaken = errors.New("the port is taken")

// Server is one private server process. Only the Start functions make one.
type Server struct {
	t        testing.TB
	binary   string
	options  options
	dir      string
	port     *proctest.Port
	bus      *proctest.Port // of a cluster node; nil for others
	password string
	client   *redis.Client

	mu      sync.Mutex
	process *proctest.Process // the latest; nil before the first start
	tied    *proctest.Tied    // in place of process, of a server that outlives its test
	paused  bool
	ended   bool
}

// options are the settings that differ between servers.
type options struct {
	sentinel bool     // watches other servers and holds no data
	cluster  bool     // is a cluster node, with a second port for the cluster bus
	at       Host     // where it runs
	config   []string // lines of its configuration file, after those that all servers get
	args     []string // on its command line, so they overrule the file
}

// Host is a network namespace in which a server runs. The zero Host is that of the test.
type Host struct {
	Address string
	Enter   []string // the words of a command that runs another command there
}

// Start runs a private redis-server and ends it with the test. The server keeps nothing on disk
// unless args say so; args are options as redis-server takes them on its command line, such as
// "--appendonly", "yes".
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	return start(t, options{args: args})
}

func start(t testing.TB, o options) *Server {
	t.Helper()
	s, err := tryStart(t, o)
	must(t, "start", err)
	return s
}

// tryStart returns a server that answers. If another process took its port, it tries a few others.
func tryStart(t testing.TB, o options) (*Server, error) {
	binary, err := findBinary()
	if err != nil {
		return nil, err
	}
	for attempt := 1; ; attempt++ {
		s := &Server{t: t, binary: binary, options: o, dir: t.TempDir(), password: passwordIn(o.args)}
		err := s.firstStart()
		if err == nil {
			t.Cleanup(s.end)
			return s, nil
		}
		s.release()
		if attempt == 5 || !errors.Is(err, errPortTaken) {
			return nil, err
		}
	}
}

// findBinary returns the path of the server binary, or an error that says how to install it.
func findBinary() (string, error) {
	path, err := exec.LookPath(cmp.Or(os.Getenv("REDIS_SERVER"), "redis-server"))
	if err != nil {
		return "", fmt.Errorf("no server to test with: %w; install one with `apt-get install -y redis-server` (or `make deps`), "+
			"or name its binary in REDIS_SERVER", err)
	}
	return path, nil
}

// passwordIn returns the password that args make the server ask for, so that we can look at it.
func passwordIn(args []string) string {
	password := ""
	for i := 1; i < len(args); i++ {
		if args[i-1] == "--requirepass" {
			password = args[i]
		}
	}
	return password
}

// firstStart reserves what the server needs, writes its configuration file and launches it.
func (s *Server) firstStart() error {
	var err error
	if s.port, err = proctest.Reserve(); err != nil {
		return err
	}
	if s.options.cluster {
		if s.bus, err = proctest.Reserve(); err != nil {
			return err
		}
	}
	s.client = redis.NewClient(s.clientOptions())
	if err := os.Mkdir(s.dataDir(), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(s.configFile(), []byte(s.config()), 0o644); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.launchLocked()
}

// clientOptions are those of a client without retries, so that what it reports is what happened.
// Each of its questions has queryLimit for its answer.
// The pool is wide because go-redis stops dialling for a while after as many failed dials as the
// pool has places, and a server that has been down for long should be reachable as soon as it is
// back.
func (s *Server) clientOptions() *redis.Options {
	return &redis.Options{
		Addr:                     s.Addr(),
		Password:                 s.password,
		MaxRetries:               -1,
		DialerRetries:            1,
		PoolSize:                 1000,
		ReadTimeout:              queryLimit,
		ContextTimeoutEnabled:    true,
		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
}

func (s *Server) config() string {
	lines := []string{
		"bind " + s.host(),
		"port " + strconv.Itoa(s.port.Number()),
		"dir " + strconv.Quote(s.dataDir()),
	}
	if s.options.at.Address != "" {
		lines = append(lines, "protected-mode no")
	}
	if !s.options.sentinel {
		lines = append(lines,
			`save ""`,
			"appendonly no",
			"enable-debug-command yes",
			"repl-diskless-sync-delay 0", // a new replica is served at once
		)
	}
	if s.options.cluster {
		lines = append(lines,
			"cluster-enabled yes",
			"cluster-port "+strconv.Itoa(s.bus.Number()),
			"cluster-announce-ip 127.0.0.1",
			"cluster-node-timeout 2000",
			"cluster-config-file "+strconv.Quote(s.nodesFile()),
		)
	}
	return strings.Join(append(lines, s.options.config...), "\n") + "\n"
}

func (s *Server) dataDir() string    { return filepath.Join(s.dir, "data") }
func (s *Server) configFile() string { return filepath.Join(s.dir, "redis.conf") }
func (s *Server) nodesFile() string  { return filepath.Join(s.dir, "nodes.conf") }
func (s *Server) logFile() string    { return filepath.Join(s.dir, "redis.log") }

// Addr returns the server's address, 127.0.0.1:port. It stays the same through every restart.
func (s *Server) Addr() string { return s.host() + ":" + strconv.Itoa(s.port.Number()) }

func (s *Server) host() string { return cmp.Or(s.options.at.Address, "127.0.0.1") }

// URL returns the server's address as redis://127.0.0.1:port. It carries no password.
func (s *Server) URL() string { return "redis://" + s.Addr() }

// Nodes is the server alone, as [Cluster.Nodes] is all of a cluster's.
func (s *Server) Nodes() []*Server { return []*Server{s} }

// Client returns a plain go-redis client for looking at the server and for faulting it. It never
// retries, honours the deadline of its context, and is closed with the test.
func (s *Server) Client() *redis.Client { return s.client }

// Pid returns the process id of the server, also of a paused one, or 0 when it is not running.
func (s *Server) Pid() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.process.Running() {
		return 0
	}
	return s.process.Pid()
}

// Stop asks the server to shut down in order, as SIGTERM does, and returns when it has ended. A
// paused server is resumed for it. Stopping a server that is not running does nothing.
func (s *Server) Stop() {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	must(s.t, "Stop", s.stopLocked())
}

// Kill ends the server as a crash would, with SIGKILL, and returns when it is gone. Killing a
// server that is not running does nothing.
func (s *Server) Kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.killLocked()
}

// Pause freezes the server with SIGSTOP: it keeps its connections, and the kernel even accepts new
// ones, but nothing is answered until Resume. Commands sent meanwhile are run then. Pausing a
// server that is not running fails the test.
func (s *Server) Pause() {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.process.Running() {
		s.t.Fatalf("redistest: Pause: %s is not running", s.Addr())
	}
	s.process.Signal(syscall.SIGSTOP)
	s.paused = true
}

// Resume lets a paused server run on. It does nothing to any other server.
func (s *Server) Resume() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.paused {
		s.process.Signal(syscall.SIGCONT)
		s.paused = false
	}
}

// Restart starts the server again on the same port, with its configuration and with the data it has
// on disk, and returns when it answers. A server that is still running is stopped first.
func (s *Server) Restart() {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	must(s.t, "Restart", s.stopLocked())
	must(s.t, "Restart", s.launchLocked())
}

// RestartEmpty kills the server if it is running, empties its data directory, starts it again on
// the same port and returns when it answers. The keys are lost, but not its configuration and role.
func (s *Server) RestartEmpty() {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.killLocked()
	must(s.t, "RestartEmpty", os.RemoveAll(s.dataDir()))
	must(s.t, "RestartEmpty", os.Mkdir(s.dataDir(), 0o755))
	must(s.t, "RestartEmpty", s.launchLocked())
}

// RestartUnknown is RestartEmpty of a node of a cluster, which forgets the cluster as well: to the
// other nodes it is a stranger at a known address.
func (s *Server) RestartUnknown() {
	s.t.Helper()
	s.Kill()
	must(s.t, "RestartUnknown", os.Remove(s.nodesFile()))
	s.RestartEmpty()
}

// stopLocked ends the process with SIGTERM. One that does not end in time is killed and reported.
func (s *Server) stopLocked() error {
	if !s.process.Running() {
		return nil
	}
	s.process.Signal(syscall.SIGTERM)
	if s.paused {
		s.process.Signal(syscall.SIGCONT)
		s.paused = false
	}
	select {
	case <-s.process.Done():
		return nil
	case <-time.After(stopLimit):
		s.process.Kill()
		return fmt.Errorf("%s did not shut down within %v and was killed; %s", s.Addr(), stopLimit, proctest.LogTail(s.logFile()))
	}
}

func (s *Server) killLocked() {
	if s.process.Running() {
		s.process.Kill()
	}
	s.paused = false
}

// end is the server's part of the test's cleanup.
func (s *Server) end() {
	if s.t.Failed() {
		s.t.Logf("redistest: %s: %s", s.Addr(), proctest.LogTail(s.logFile()))
	}
	s.release()
}

// release ends the process and gives back everything taken for it. There is no start after that.
func (s *Server) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return
	}
	s.killLocked()
	s.ended = true
	if s.client != nil {
		_ = s.client.Close()
	}
	for _, p := range []*proctest.Port{s.port, s.bus} {
		if p != nil {
			p.Release()
		}
	}
}
