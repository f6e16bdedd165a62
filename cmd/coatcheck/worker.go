package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/coatcheck/coatcheck/client"
	"github.com/coatcheck/coatcheck/internal/wire"
	"github.com/coatcheck/coatcheck/snowflake"
	"github.com/coatcheck/coatcheck/workerlease"
)

func (p *program) workerCommand() *cobra.Command {
	command := &cobra.Command{
		Use: "worker", Short: "Lease worker ids for commands, and look at pools of them", Args: noArgs,
		Long: "Lease worker ids for commands, and look at pools of them: at a running service (--server), or straight on Redis (--redis).",
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	command.AddCommand(p.workerRunCommand(), p.workerCreateCommand(), p.workerListCommand())
	return command
}

// poolShape is what a pool is asked to be, as flags say it. What is not said is the pool's own, or the default of a pool that is new.
type poolShape struct {
	ttl        time.Duration
	layout     string
	epoch      string
	datacenter int64
}

const unsaid = "" // of a flag that was left out

// bind returns the settings of a shape. least is the shortest TTL.
func (s *poolShape) bind(least time.Duration) []*setting {
	return []*setting{
		optional(span("ttl", unsaid, least, workerlease.MaxTTL, "how long a lease is good for without a renewal; empty: as the pool has it, 30s for one that is new", &s.ttl)),
		layoutText("layout", "timestamp/worker/sequence bits, timestamp/datacenter/worker/sequence, @s for seconds; empty: as the pool has it, "+snowflake.DefaultLayout+" for one that is new", &s.layout),
		moment("epoch", "what timestamps count from; empty: as the pool has it, "+snowflake.DefaultEpoch.Format(time.RFC3339)+" for one that is new", &s.epoch),
		optional(number("datacenter", unsaid, 0, 1<<snowflake.MaxWorkerBits-1, "number", "the pool's datacenter; empty: as the pool has it, 0 for one that is new", &s.datacenter)),
	}
}

func layoutText(name, help string, into *string) *setting {
	return &setting{name: name, unit: "layout", help: help, parse: func(s string) error {
		*into = s
		if s == unsaid {
			return nil
		}
		_, err := snowflake.ParseLayout(s)
		return err
	}}
}

func moment(name, help string, into *string) *setting {
	return &setting{name: name, unit: "RFC 3339", help: help, parse: func(s string) error {
		*into = s
		if s == unsaid {
			return nil
		}
		if _, err := time.Parse(time.RFC3339, s); err != nil {
			return fmt.Errorf("%q is not a time such as 2020-01-01T00:00:00Z", s)
		}
		return nil
	}}
}

// request is the shape as a client sends it. said tells of a flag whether it was.
func (s *poolShape) request(identity string, said func(flag string) bool) client.WorkerRequest {
	asked := client.WorkerRequest{TTL: s.ttl, Identity: identity, Layout: s.layout}
	if s.epoch != unsaid {
		asked.Epoch, _ = time.Parse(time.RFC3339, s.epoch) // it was checked
	}
	if said("datacenter") {
		asked.Datacenter = new(int(s.datacenter))
	}
	return asked
}

// pools is where worker ids come from: a running service, or Redis itself.
type pools interface {
	hold(ctx context.Context, pool string, request client.WorkerRequest, options client.HoldOptions) (*client.Holder, error)
	create(ctx context.Context, pool string, request client.WorkerRequest) (wire.WorkerPool, error)
	list(ctx context.Context) ([]wire.WorkerPool, error)
	ring(ctx context.Context, pool string, from, n int) (wire.WorkerRing, error)
	ids(ctx context.Context, pool string, n int) ([]snowflake.ID, error)
}

// source says where a command finds its pools.
type source struct {
	remote
}

// straight names the settings of the service that a command takes as well when it goes straight to Redis.
var straight = map[string]bool{
	"redis": true, "ack": true, "prefix": true, "store-timeout": true, "new-pools": true, "clock-skew": true, "worker-cooldown": true,
}

// bindSource adds --server, --redis with what belongs to it, --config and the command's own settings to its flags.
func bindSource(flags *pflag.FlagSet, own ...*setting) *source {
	s := &source{}
	own = append(own, text("server", "http://127.0.0.1:8080", "URL", "the running service to ask", &s.server))
	mine := map[string]bool{}
	for _, setting := range own {
		mine[setting.name] = true
	}
	var rest []*setting
	for _, setting := range settings(&s.config) {
		switch {
		case mine[setting.name]: // such as --identity, which is the command's here
		case straight[setting.name]:
			if setting.name == "redis" {
				setting.help = "the Redis to go to straight, instead of a service: redis:// | rediss:// | unix:// | redis+sentinel:// | redis+cluster://"
			}
			own = append(own, setting)
		default:
			rest = append(rest, setting)
		}
	}
	s.bind(flags, own)
	s.table = append(s.table, rest...)
	return s
}

// said tells whether a flag was given, as flag, variable or in the file.
func (s *source) said(name string) bool {
	for _, setting := range s.table {
		if setting.name == name {
			return setting.source != "default" && setting.value != unsaid
		}
	}
	return false
}

// weight ranks where a setting's value came from.
func (s *source) weight(name string) int {
	for _, setting := range s.table {
		if setting.name == name {
			return map[string]int{"file": 1, "environment": 2, "flag": 3}[setting.source]
		}
	}
	return 0
}

// direct tells whether to go straight to Redis: where it was named nearer to the command line than the service. The embedded store is the service's own, so
// a file or environment that is shared with the service means the service by it.
func (s *source) direct() (bool, error) {
	redis, server := s.weight("redis"), s.weight("server")
	embedded := s.config.redis == "" || s.config.redis == "embedded:"
	switch {
	case redis == 3 && server == 3:
		return false, errors.New("--server and --redis: name one of them")
	case redis == 3 && embedded:
		return false, errors.New("--redis: the embedded store belongs to the service that runs it: ask that one, with --server")
	}
	return redis > server && !embedded, nil
}

// at runs the part of a command that needs pools, and says what kind of failure its error is.
func (p *program) at(c *cobra.Command, s *source, command func(context.Context, pools) error) error {
	if err := s.load(c.Flags(), p.getenv); err != nil {
		return configError(err)
	}
	direct, err := s.direct()
	if err != nil {
		return usageError{err}
	}
	if direct {
		return p.atRedis(c.Context(), s, command)
	}
	return p.atService(c.Context(), s, command)
}
