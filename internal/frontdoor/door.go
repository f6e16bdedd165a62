package frontdoor

import (
	"cmp"
	"container/list"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coatcheck/coatcheck/internal/share"
)

// The bounds where none are set.
const (
	DefaultHeaderTimeout  = 5 * time.Second
	DefaultIdleTimeout    = 2 * time.Minute
	DefaultMaxHeader      = 64 << 10
	DefaultMaxConnections = 10_000
)

// maxFields is how many header fields a request may have: a map of many small ones takes far more
// memory than their bytes.
const maxFields = 256

// Config sets up a door. The zero value of each field means the default beside it.
type Config struct {
	HeaderTimeout time.Duration // how long the header of a request may take to arrive; 0 = 5 s
	IdleTimeout   time.Duration // how long a connection is kept without a request; 0 = 2 min
	// bytes of a request's line and header; 0 = 64 KiB. net/http takes 4 KiB more
	MaxHeader      int
	MaxConnections int // connections that are open at once; 0 = 10000
	// of those, connections of one address, or of one /64 of IPv6; 0 = all
	MaxPerAddress int
	MaxBytes      int64 // memory that requests under way may take; 0 = [DefaultMaxBytes]
	// of that memory, what one caller may take while half is taken: see [Own]; 0 = a quarter
	ShareBytes int64
	Logger     *slog.Logger // nil = no log
}

func (c Config) withDefaults() Config {
	c.HeaderTimeout = cmp.Or(c.HeaderTimeout, DefaultHeaderTimeout)
	c.IdleTimeout = cmp.Or(c.IdleTimeout, DefaultIdleTimeout)
	c.MaxHeader = cmp.Or(c.MaxHeader, DefaultMaxHeader)
	c.MaxConnections = cmp.Or(c.MaxConnections, DefaultMaxConnections)
	c.MaxBytes = cmp.Or(c.MaxBytes, DefaultMaxBytes())
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// Door is the bounds of one server. It is safe for concurrent use.
type Door struct {
	config Config

	mu     sync.Mutex
	inside map[net.Conn]*visit
	quiet  [ranks]list.List // those inside of which no request is being answered, the longest first
	// closed when a connection has ended or its state has changed; nil = no caller waits for that
	change chan struct{}
	warned time.Time

	listeners []net.Listener
	addresses map[netip.Prefix]int // connections inside by address

	draining atomic.Bool
	underWay atomic.Int64 // requests that have come whole and are not answered

	bodiesMu sync.Mutex
	bodies   map[*body]struct{}   // of requests that are not answered
	unsent   map[*answer]struct{} // that wait for their clients to take them
	hurried  bool

	pressing sync.Mutex // held while silent clients are hurried for want of memory
	pressed  time.Time  // when that was last begun

	bytes  atomic.Int64 // in flight
	shares share.Quota  // of those that are a caller's
}

// New returns a door without connections.
func New(config Config) *Door {
	config = config.withDefaults()
	return &Door{config: config, inside: map[net.Conn]*visit{}, bodies: map[*body]struct{}{}, unsent: map[*answer]struct{}{},
		addresses: map[netip.Prefix]int{}, shares: share.Quota{Most: int(config.MaxBytes), Each: int(config.ShareBytes)}}
}

// Server is an HTTP server within the bounds. It has to serve on a listener that went through
// Around. A caller may add to the settings of HTTP/2.
func (d *Door) Server(handler http.Handler) *http.Server {
	return &http.Server{
		Handler:           d.answers(fewFields(handler)),
		ReadHeaderTimeout: d.config.HeaderTimeout,
		IdleTimeout:       d.config.IdleTimeout,
		MaxHeaderBytes:    d.config.MaxHeader,
		ConnState:         d.note,
		ConnContext:       withConn,
		HTTP2: &http.HTTP2Config{
			MaxReadFrameSize:              frameSize,
			MaxReceiveBufferPerConnection: windowSize,
			MaxReceiveBufferPerStream:     windowSize,
		},
	}
}

// Around bounds a listener's connections. Beyond the bound, a new one replaces the one that loses
// least, as [rank] says; if every connection has a request under way, it waits until one is idle.
// Later ones wait in the operating system.
func (d *Door) Around(l net.Listener) net.Listener {
	around := &listener{Listener: l, door: d, closed: make(chan struct{})}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.listeners = append(d.listeners, around)
	return around
}

// fewFields answers a request with too many header fields as net/http answers one whose header is
// too large.
func fewFields(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fields := 0
		for _, values := range r.Header {
			fields += len(values)
		}
		if fields > maxFields {
			const text = "431 Request Header Fields Too Large"
			header := w.Header()
			header.Set("Content-Type", "text/plain; charset=utf-8")
			header.Set("Connection", "close")
			w.WriteHeader(http.StatusRequestHeaderFieldsTooLarge)
			_, _ = w.Write([]byte(text)) // the client may have hung up
			return
		}
		next.ServeHTTP(w, r)
	})
}
