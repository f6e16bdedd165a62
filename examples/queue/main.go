// Command queue consumes a Redis stream with a consumer group, and sends a mail for each message.
//
// A queue delivers a message again when its consumer dies before the acknowledgement, or takes too
// long. The message's id is the key of an operation, so that each mail is sent at most once: a
// repeat of a message that was done is only acknowledged, and one whose consumer died in the midst
// is in doubt, and stays in the queue, until --settle has looked at what was sent.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coatcheck/coatcheck/idempotency"
	"github.com/coatcheck/coatcheck/redisstore"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// program is what the command line asks for.
type program struct {
	redis  string
	name   string
	lease  time.Duration
	idle   time.Duration
	settle bool
	log    *slog.Logger
}

// run is the whole program: it ends soon after the context. The result is the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	p := &program{log: slog.New(slog.NewTextHandler(stderr, nil))}
	host, _ := os.Hostname()
	flags := flag.NewFlagSet("queue", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&p.redis, "redis", "redis://localhost:6379", "the Redis with the stream, the mails and the records")
	flags.StringVar(&p.name, "name", cmp.Or(host, "consumer"), "of this consumer in its group: its own, and the same after a restart")
	flags.DurationVar(&p.lease, "lease", 30*time.Second, "how long a consumer may be silent: from then on its message is in doubt")
	flags.DurationVar(&p.idle, "idle", 30*time.Second, "a message that is not acknowledged is delivered again after that long")
	flags.BoolVar(&p.settle, "settle", false, "do not consume: settle what is in doubt by what was sent, and end")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	if err := p.run(ctx, stdout); err != nil {
		fmt.Fprintf(stderr, "queue: %v\n", err)
		return 1
	}
	return 0
}

func (p *program) run(ctx context.Context, stdout io.Writer) (err error) {
	options, err := redis.ParseURL(p.redis)
	if err != nil {
		return err
	}
	options.MaxRetries = -1 // a mail that had no answer must not be sent again
	client := redis.NewClient(options)
	defer func() { err = errors.Join(err, client.Close()) }()
	store, err := redisstore.Open(ctx, p.redis)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	tokens := idempotency.New(store, idempotency.Config{Logger: p.log})
	defer func() {
		late, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		err = errors.Join(err, tokens.Close(late))
	}()
	mails := &outbox{client}
	if p.settle {
		happened, not, err := settle(ctx, tokens, mails)
		fmt.Fprintf(stdout, "settled: %d were sent, %d were not and are sent now\n", happened, not)
		return err
	}
	return (&consumer{client, tokens, mails, p.name, p.lease, p.idle, p.log}).run(ctx)
}
