package cli

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/coatcheck/coatcheck/client"
	"github.com/coatcheck/coatcheck/cmd/coatcheck/internal/config"
	"github.com/coatcheck/coatcheck/snowflake"
	"github.com/coatcheck/coatcheck/workerlease"
)

func (p *program) workerCommand() *cobra.Command {
	return group("worker", "Lease worker ids for commands, and look at pools of them",
		"Lease worker ids for commands, and look at pools of them: at a running service (--server), or straight on Redis (--redis).",
		p.workerRunCommand(), p.workerCreateCommand(), p.workerListCommand())
}

// poolShape is a pool's shape by the flags. The default of each is the pool's, or a new pool's.
type poolShape struct {
	ttl        time.Duration
	layout     string
	epoch      string
	datacenter int64
}

// bind returns the settings of a shape. least is the shortest TTL.
func (s *poolShape) bind(least time.Duration) []*config.Setting {
	return []*config.Setting{
		config.Optional(config.Span("ttl", config.Unsaid, least, workerlease.MaxTTL,
			"how long a lease is good for without a renewal; empty: as the pool has it, 30s for one that is new", &s.ttl)),
		layoutText("layout", "timestamp/worker/sequence bits, timestamp/datacenter/worker/sequence, @s for seconds; empty: as the "+
			"pool has it, "+snowflake.DefaultLayout+" for one that is new", &s.layout),
		moment("epoch", "what timestamps count from; empty: as the pool has it, "+snowflake.DefaultEpoch.Format(time.RFC3339)+
			" for one that is new", &s.epoch),
		config.Optional(config.Number("datacenter", config.Unsaid, 0, 1<<workerlease.MaxBits-1, "number",
			"the pool's datacenter; empty: as the pool has it, 0 for one that is new", &s.datacenter)),
	}
}

func layoutText(name, help string, into *string) *config.Setting {
	return config.Checked(name, "layout", help, func(s string) error {
		_, err := snowflake.ParseLayout(s)
		return err
	}, into)
}

func moment(name, help string, into *string) *config.Setting {
	return config.Checked(name, "RFC 3339", help, func(s string) error {
		if _, err := time.Parse(time.RFC3339, s); err != nil {
			return fmt.Errorf("%q is not a time such as 2020-01-01T00:00:00Z", s)
		}
		return nil
	}, into)
}

// request is the shape as a client sends it. said reports whether a flag was given.
func (s *poolShape) request(identity string, said func(flag string) bool) client.WorkerRequest {
	asked := client.WorkerRequest{TTL: s.ttl, Identity: identity, Layout: s.layout}
	if s.epoch != config.Unsaid {
		asked.Epoch, _ = time.Parse(time.RFC3339, s.epoch) // it was checked
	}
	if said("datacenter") {
		asked.Datacenter = new(int(s.datacenter))
	}
	return asked
}
