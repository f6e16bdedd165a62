package cli

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"time"

	"github.com/coatcheck/coatcheck/cmd/coatcheck/internal/config"
	"github.com/coatcheck/coatcheck/internal/health"
	"github.com/coatcheck/coatcheck/internal/redisprobe"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/workerlease"
)

// started is the report of serve when it is ready.
type started struct {
	URL        string `json:"url"`
	AdminURL   string `json:"admin_url,omitempty"` // empty = there is no admin listener
	Store      string `json:"store"`               // embedded, standalone, sentinel or cluster
	Address    string `json:"address"`             // of the store
	Ack        int    `json:"ack"`
	Durability string `json:"durability"` // what can be lost, and when
	Access     string `json:"access"`     // who may ask
	Principal  string `json:"principal"`  // what tells callers apart
	// what others than this machine can do, and what Redis refuses
	Warnings []string `json:"warnings,omitempty"`
	Hazards  []string `json:"hazards,omitempty"` // settings of Redis that lose state
	Problem  string   `json:"problem,omitempty"` // why the store does not answer now
	// why counters, segments and worker ids are refused on this Redis; "" = they are not
	Unsuitable string `json:"unsuitable,omitempty"`
	// how long a worker-id pool that the store does not know grants nothing, at most; 0 = it is new
	NewPoolWait int64  `json:"new_pool_wait_ms,omitempty"`
	Version     string `json:"version"`

	profiles bool // whether they are at AdminURL
}

type servedAt struct {
	clients net.Addr
	admin   string // its URL; "" = nowhere
}

func startedAt(ctx context.Context, c *config.Service, store *redisstore.Store, at servedAt, log *slog.Logger) started {
	s := started{
		URL: c.Scheme() + reachable(at.clients.String()), AdminURL: at.admin, Store: string(store.Mode()), Address: store.Address(),
		Durability: redisprobe.Durability(ctx, store), Version: version().Version,
		Principal: whoCallersAre(c), profiles: c.Profiles,
	}
	if err := store.Ping(ctx); err != nil {
		s.Problem = err.Error()
		return s
	}
	s.Hazards, s.Warnings = hazards(ctx, store, log), refused(ctx, store, log)
	if holds, err := store.Continuity(ctx); err == nil {
		s.Ack = holds.Acks
	}
	s.Unsuitable = unsuitable(ctx, store)
	return s
}

func (p *program) banner(ctx context.Context, c *config.Service, store *redisstore.Store, at servedAt, log *slog.Logger) error {
	s := startedAt(ctx, c, store, at, log)
	s.Access = whoMayAsk(c)
	for _, missing := range c.Exposed() {
		s.Warnings = append(s.Warnings, "insecure: other machines can reach this service; "+missing)
	}
	if c.Server.Workers.NewPools == workerlease.NewPoolsWait {
		longest := cmp.Or(c.Server.Workers.LongestTTL, workerlease.DefaultTTL)
		for _, pin := range c.Server.Workers.Pools {
			longest = max(longest, pin.TTL)
		}
		s.NewPoolWait = (longest + c.Server.Workers.Skew).Milliseconds()
	}
	return p.print(s, s.people(c))
}

// unsuitable returns why counters, segments and worker ids are refused on this Redis, "" if they
// are not.
func unsuitable(ctx context.Context, store *redisstore.Store) string {
	found, err := health.IncarnationOf(ctx, store)
	if err != nil || found.Change != health.None {
		return ""
	}
	return (&redisstore.UnsuitableError{Fact: found.Fact}).Error()
}

// places says where the operator looks, and what is kept where.
func (s started) places(b *strings.Builder) {
	if s.AdminURL != "" {
		fmt.Fprintf(b, "  admin       %s/readyz  %s/metrics", s.AdminURL, s.AdminURL)
		if s.profiles {
			fmt.Fprintf(b, "  %s/debug/pprof/", s.AdminURL)
		}
		b.WriteString("\n")
	}
	fmt.Fprintf(b, "  store       %s  %s\n", s.Store, strings.TrimPrefix(s.Address, "embedded:"))
	fmt.Fprintf(b, "  durability  %s\n", s.Durability)
}

// faults says what an operator should know, and what happens until the store answers.
func (s started) faults(b *strings.Builder, meanwhile string) {
	for _, warning := range append(s.Warnings, s.Hazards...) {
		fmt.Fprintf(b, "  WARNING     %s\n", warning)
	}
	if s.Problem != "" {
		fmt.Fprintf(b, "  PROBLEM     the store does not answer: %s\n              %s\n", s.Problem, meanwhile)
	}
}

func (s started) people(c *config.Service) string {
	var b strings.Builder
	if s.Unsuitable != "" {
		fmt.Fprintf(&b, "CRITICAL: counters, segments and worker ids are refused: %s\n\n", s.Unsuitable)
	}
	fmt.Fprintf(&b, "coatcheck %s\n\n", s.Version)
	fmt.Fprintf(&b, "  listening   %s\n", s.URL)
	s.places(&b)
	fmt.Fprintf(&b, "  access      %s\n", s.Access)
	fmt.Fprintf(&b, "  callers     %s\n", s.Principal)
	if s.NewPoolWait > 0 {
		fmt.Fprintf(&b, "  worker ids  a pool that this Redis does not know waits for up to %v, in case it was lost:\n"+
			"              `coatcheck worker create POOL` says that it is new; if it was lost, ids can then come twice\n",
			time.Duration(s.NewPoolWait)*time.Millisecond)
	}
	s.faults(&b, "the service is up and answers 503 until it does")
	ids := "/id/snowflake"
	if c.Server.IDPool == "" {
		ids += "/orders"
	}
	curl := curlOf(c)
	fmt.Fprintf(&b, "\nTry:\n  %s %s/incr/orders\n  %s %s%s\n  %s -X POST %s/worker/orders\n  %s -X POST %s/token\n", curl, s.URL, curl,
		s.URL, ids, curl, s.URL, curl, s.URL)
	if c.Server.Dev {
		fmt.Fprintf(&b, "  %s %s/payments -H 'Idempotency-Key: order-1' -d '{\"amount\":1299,\"currency\":\"EUR\",\"to\":\"acct_1\"}'   "+
			"(twice)\n", curl, s.URL)
	} else {
		fmt.Fprintf(&b, "  coatcheck serve --dev   adds a payment route to try tokens on\n")
	}
	fmt.Fprintf(&b, "Everything else: %s/\n\n", s.URL)
	return b.String()
}

// hazards asks the Redis for settings under which it loses state by itself, and logs them.
func hazards(ctx context.Context, store *redisstore.Store, log *slog.Logger) (found []string) {
	list, err := redisprobe.Hazards(ctx, store)
	if err != nil {
		log.Warn("the settings of the Redis cannot be read", "error", err)
	}
	for _, hazard := range list {
		log.Warn("this Redis can lose what it has confirmed", "server", hazard.Server, "risk", hazard.Risk, "fix", hazard.Fix)
		found = append(found, hazard.String())
	}
	return found
}

// refused asks the Redis for commands that the service can do without, and its user may not run.
func refused(ctx context.Context, store *redisstore.Store, log *slog.Logger) []string {
	list, err := redisprobe.Refused(ctx, store)
	if err != nil {
		log.Warn("the rights of the Redis's user cannot be seen", "error", err)
	}
	for _, line := range list {
		log.Warn("the Redis refuses commands: " + line)
	}
	return list
}

// reachable turns "all interfaces" into an address that a person can use here.
func reachable(address string) string {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port)
}

// whoMayAsk is the banner's line about the callers that the service admits.
func whoMayAsk(c *config.Service) string {
	var who []string
	if c.Access.File != "" {
		who = append(who, "keys and certificates of "+c.Access.File)
	}
	if len(c.Access.Keys) > 0 {
		who = append(who, "keys of COATCHECK_ACCESS_KEYS")
	}
	if c.AccessStore {
		who = append(who, "keys in Redis (coatcheck key add)")
	}
	switch {
	case len(who) > 0:
		return strings.Join(who, ", ")
	case c.TLSClientCA != "" && c.TLSClientAuth == config.RequireCertificate:
		return "every client with a certificate of " + c.TLSClientCA + " may do everything"
	}
	return "every caller may do everything (--access asks for keys)"
}

func curlOf(c *config.Service) string {
	curl := "curl"
	if c.TLSCert != "" {
		curl += " --cacert CA.pem"
	}
	if c.Controlled() {
		curl += ` -H "Authorization: Bearer $COATCHECK_API_KEY"`
	}
	return curl
}
