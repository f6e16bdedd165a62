package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"time"

	_ "github.com/coatcheck/coatcheck/embedded" // for the URL embedded:
	"github.com/coatcheck/coatcheck/idempotency"
	"github.com/coatcheck/coatcheck/redisstore"
)

// Exit codes.
const (
	done   = 0
	failed = 1
	usage  = 2
)

// stopTimeout is how long requests under way, and answers that could not be recorded yet, may take
// when the service stops.
const stopTimeout = 10 * time.Second

// program is the whole service, so that tests can run it.
type program struct {
	redis   string
	file    string
	listen  string
	lease   time.Duration
	ack     int
	crashAt string
	settle  bool

	stdout io.Writer
	log    *slog.Logger
	at     func(step) // what happens at each step of a charge
}

// run is the whole program: it ends soon after the context. The result is the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	return (&program{stdout: stdout, at: func(step) {}}).run(ctx, args, stderr)
}

func (p *program) run(ctx context.Context, args []string, stderr io.Writer) int {
	if err := p.parse(args, stderr); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return done
		}
		return usage
	}
	p.log = slog.New(slog.NewTextHandler(stderr, nil))
	redisstore.LogTo(p.log)
	if err := p.serve(ctx); err != nil {
		fmt.Fprintf(stderr, "payments: %v\n", err)
		return failed
	}
	return done
}

// parse reads the command line, and tells on stderr what is wrong with it.
func (p *program) parse(args []string, stderr io.Writer) error {
	flags := flag.NewFlagSet("payments", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&p.redis, "redis", "embedded:",
		"the Redis for keys and answers: redis://host:6379, redis+sentinel://…, redis+cluster://…; embedded: is one in memory")
	flags.StringVar(&p.file, "db", "payments.db", "the SQLite file of the ledger; made if it is missing")
	flags.StringVar(&p.listen, "listen", "127.0.0.1:8081", "address and port")
	flags.DurationVar(&p.lease, "lease", 30*time.Second, "how long an attempt may be silent before it is in doubt")
	flags.IntVar(&p.ack, "ack", 0, "replicas of the Redis that must have a claim before its handler runs")
	flags.StringVar(&p.crashAt, "crash-at", "",
		"for tests, and for you to see: die at this step of a charge, as by kill -9: before-charge, in-transaction, after-commit")
	flags.BoolVar(&p.settle, "settle", false,
		"do not serve: settle the payments in doubt by what the ledger says, once, and end; run it every minute beside the service")
	if err := flags.Parse(args); err != nil {
		return err
	}
	err := p.check(flags.Args())
	if err != nil {
		fmt.Fprintf(stderr, "payments: %v\n", err)
	}
	return err
}

func (p *program) check(rest []string) error {
	doomed, err := parseStep(p.crashAt)
	if doomed != "" {
		p.at = crashAt(doomed)
	}
	faults := []error{err, redisstore.Config{URL: p.redis, Ack: p.ack}.Check()}
	if len(rest) > 0 {
		faults = append(faults, fmt.Errorf("unexpected argument %q", rest[0]))
	}
	if p.lease < idempotency.MinLease || p.lease > idempotency.MaxLease {
		faults = append(faults, fmt.Errorf("--lease %v: %v to %v", p.lease, idempotency.MinLease, idempotency.MaxLease))
	}
	return errors.Join(faults...)
}

// serve runs the service until the context ends.
func (p *program) serve(ctx context.Context) (err error) {
	ledger, err := openLedger(ctx, p.file, p.at)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ledger.close()) }()
	store, err := redisstore.OpenConfig(ctx, redisstore.Config{URL: p.redis, Ack: p.ack, Logger: p.log})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	if p.settle {
		settled, err := newService(store, ledger, p.lease, p.log).settle(ctx)
		fmt.Fprintf(p.stdout, "settled %d payments\n", settled)
		return err
	}
	listener, err := net.Listen("tcp", p.listen)
	if err != nil {
		return err
	}
	p.banner(listener.Addr(), store)
	return p.answer(ctx, listener, newService(store, ledger, p.lease, p.log))
}

// answer serves requests until the context ends, then stops in good order: no new connections,
// requests under way end, late answers are recorded.
func (p *program) answer(ctx context.Context, listener net.Listener, s *service) error {
	web := &http.Server{
		Handler:           s.routes(),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		ErrorLog:          slog.NewLogLogger(p.log.Handler(), slog.LevelDebug),
	}
	ended := make(chan error, 1)
	go func() { ended <- web.Serve(listener) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	return errors.Join(web.Shutdown(stopping), s.tokens.Close(stopping))
}

// banner tells what runs and what to try.
func (p *program) banner(at net.Addr, store *redisstore.Store) {
	redis := store.Address()
	if store.Mode() == redisstore.ModeEmbedded {
		redis = "embedded: in memory, for one process; its keys and answers are gone when this process ends, the ledger's rows are not"
	}
	fmt.Fprintf(p.stdout, `payments, an example of coatcheck

  listening  http://%[1]s
  ledger     %[2]s
  redis      %[3]s

Try:
  curl http://%[1]s/accounts
  curl -i http://%[1]s/payments -H 'Idempotency-Key: order-1' -d '{"amount":1299,"to":"alice","reference":"order-1"}'   (twice)
  curl -i http://%[1]s/transfers -H 'Idempotency-Key: move-1' -d '{"from":"alice","to":"bob","amount":500}'   (twice)
Then start it again with --crash-at after-commit, send another one, and send it once more without; examples/payments/README.md goes on.

`, at, p.file, redis)
}
