package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/coatcheck/coatcheck/cmd/coatcheck/internal/config"
	"github.com/coatcheck/coatcheck/doctor"
	"github.com/coatcheck/coatcheck/internal/redisprobe"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/workerlease"
)

// never is the severity with which no finding fails the command.
const never = "never"

// examination is `doctor`, as its flags say it.
type examination struct {
	*source

	failOn    string
	readOnly  bool
	workerTTL time.Duration
}

func (p *program) doctorCommand() *cobra.Command {
	command := &cobra.Command{
		Example: "  coatcheck doctor --redis redis://localhost:6379 --ack 1",
		Use:     "doctor", Short: "Look at a Redis, or at a running service, and say what is wrong", Args: noArgs,
		Long: "Look at a Redis (--redis), or at a running service (--server): the worst is told first, each with what it risks, and the " +
			"line that ends it.\n" +
			"Give --ack, --clock-skew, --store-timeout and --prefix as the service has them.\n\n" +
			"Nothing is changed but one key on each master, which expires after ten seconds: how many replicas confirm it is what --ack " +
			"can rely on.\n\n" +
			"Exit code 1: something at --fail-on or above; 75: no server could be asked; else 0.",
	}
	e := &examination{}
	own := []*config.Setting{
		config.Choice("fail-on", doctor.Warning.String(), []string{doctor.Warning.String(), doctor.Critical.String(), never},
			"from which severity on the exit code is 1", &e.failOn),
		config.Toggle("read-only", "writes nothing: how many replicas confirm a write is then not known", &e.readOnly),
		config.Span("worker-ttl", "30s", workerlease.MinTTL, workerlease.MaxTTL,
			"the shortest TTL of the worker-id pools in use", &e.workerTTL),
	}
	e.source = bindStraight(command.Flags(), []string{"clock-skew"}, own...)
	return p.loaded(command, &e.Sources, func(c *cobra.Command, _ []string) error {
		direct, err := e.direct()
		if err != nil {
			return usageError{err}
		}
		if direct {
			return p.examineRedis(c.Context(), e)
		}
		return p.examineService(c.Context(), e)
	})
}

// settings are the settings that the findings are compared with.
func (e *examination) settings() doctor.Settings {
	store := e.Service.Store
	// a service has no URL here, and not the embedded store's timeout for that
	store.URL = cmp.Or(store.URL, "redis://of-the-service")
	return doctor.Settings{Ack: store.Ack, Restarts: store.Restarts, ClockSkew: e.Service.Server.Workers.Skew,
		StoreTimeout: store.WithDefaults().Timeout, WorkerTTL: e.workerTTL}
}

// examined answers `doctor --json`.
type examined struct {
	At       string           `json:"at"`
	Kind     string           `json:"kind"` // standalone, sentinel, cluster or service
	Worst    doctor.Severity  `json:"worst"`
	Findings []doctor.Finding `json:"findings"`
	Servers  []examinedServer `json:"servers,omitempty"`
}

type examinedServer struct {
	Addr     string  `json:"addr"`
	Role     string  `json:"role"` // master, replica or away
	Version  string  `json:"version,omitempty"`
	OffsetMS float64 `json:"clock_offset_ms"`
	WithinMS float64 `json:"clock_within_ms"`
	P50MS    float64 `json:"script_p50_ms"`
	P99MS    float64 `json:"script_p99_ms"`
}

func (p *program) examineRedis(ctx context.Context, e *examination) error {
	config := e.Service.Store
	if err := config.Check(); err != nil {
		return configError(err)
	}
	redisstore.LogTo(p.logger(&e.Service))
	live := p.live()
	facts, err := redisprobe.Inspect(ctx, config, redisprobe.Options{
		ReadOnly: e.readOnly, Progress: func(doing string, at, all int) { live.show(fmt.Sprintf("%s (%d of %d)", doing, at, all)) },
	})
	live.clear()
	if errors.Is(err, redisstore.ErrUnavailable) {
		return cmp.Or(checkFit(ctx, config), error(laterError{err})) // such as for a password
	}
	if err != nil {
		return err
	}
	found := examined{At: facts.Address, Kind: string(facts.Mode), Findings: doctor.Examine(facts, e.settings())}
	for i := range facts.Servers {
		found.Servers = append(found.Servers, serverOf(&facts.Servers[i]))
	}
	return p.tell(e, found)
}

func serverOf(s *doctor.Inspected) examinedServer {
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	shown := examinedServer{Addr: s.Addr, Role: "replica", OffsetMS: ms(s.Clock.Offset), WithinMS: ms(s.Clock.Within),
		P50MS: ms(s.Script.P50), P99MS: ms(s.Script.P99)}
	switch {
	case s.Away != "":
		shown.Role = "away"
	case s.Master:
		shown.Role = "master"
	}
	shown.Version = cmp.Or(s.Info["valkey_version"], s.Info["redis_version"])
	return shown
}

// tell prints the findings, and makes them the exit code.
func (p *program) tell(e *examination, found examined) error {
	found.Worst = doctor.Worst(found.Findings)
	if err := p.print(found, printable(found.people())); err != nil {
		return err
	}
	limit, limited := map[string]doctor.Severity{doctor.Warning.String(): doctor.Warning,
		doctor.Critical.String(): doctor.Critical}[e.failOn]
	if limited && found.Worst >= limit {
		return exitError{failed}
	}
	return nil
}

func (f examined) people() string {
	var text strings.Builder
	fmt.Fprintf(&text, "%s (%s", f.At, f.Kind)
	if n := len(f.Servers); n > 1 {
		fmt.Fprintf(&text, ", %d servers", n)
	}
	fmt.Fprint(&text, ")\n\n")
	counts := map[doctor.Severity]int{}
	for _, one := range f.Findings {
		counts[one.Severity]++
		label := one.Severity.String()
		if one.Severity > doctor.Note {
			label = strings.ToUpper(label)
		}
		fmt.Fprintf(&text, "%-9s %-20s %s\n", label, one.ID, one.Found)
		for _, line := range []struct{ name, value string }{{"at", strings.Join(one.Where, ", ")}, {"risk", one.Risk}, {"fix", one.Fix}} {
			if line.value != "" && one.Severity > doctor.OK {
				fmt.Fprintf(&text, "%-9s %-20s %-5s %s\n", "", "", line.name+":", line.value)
			}
		}
	}
	fmt.Fprintf(&text, "\n%d critical, %d warnings, %d notes, %d ok\n", counts[doctor.Critical], counts[doctor.Warning],
		counts[doctor.Note], counts[doctor.OK])
	return text.String()
}
