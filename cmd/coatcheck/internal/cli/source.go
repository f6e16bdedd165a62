package cli

import (
	"errors"
	"fmt"
	"net"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/coatcheck/coatcheck/client"
	"github.com/coatcheck/coatcheck/cmd/coatcheck/internal/config"
	_ "github.com/coatcheck/coatcheck/embedded" // for the URL embedded:
	"github.com/coatcheck/coatcheck/redisstore"
)

// source is where a command runs: at a running service, or straight on a Redis.
type source struct {
	config.Sources

	serviceAt
}

// bindStraight adds --server, --redis with what belongs to it, --config and the command's arguments
// to its flags. also names the settings of the service that the command takes as well when it goes
// straight to Redis, besides those of the store.
func bindStraight(flags *pflag.FlagSet, also []string, arguments ...*config.Setting) *source {
	s := &source{}
	const help = "the Redis to go to straight, instead of a service: redis:// | rediss:// | unix:// | redis+sentinel:// | redis+cluster://"
	bindSome(flags, &s.Sources, append(storeNames, also...), help, arguments, s.settings())
	return s
}

// storeNames are the service's settings of its Redis.
var storeNames = slices.Clip([]string{"redis", "ack", "restarts", "prefix", "store-timeout"})

// What commands on counters, locks, worker ids, tokens and operations take of the service's
// settings when they go straight to Redis, besides those of the store.
var (
	counterSettings   = []string{"counter-after-loss", "counter-margin", "counter-hold-off"}
	lockSettings      = []string{"lock-after-loss", "lock-longest-ttl", "clock-skew"}
	workerSettings    = []string{"new-pools", "clock-skew", "worker-cooldown", "worker-longest-ttl", "pools"}
	tokenSettings     = []string{"token-keys"}
	operationSettings = []string{"answer-keys"}
)

// bindSome adds a command's arguments, the settings of its connection, --config, and the settings
// of the service that are named to its flags; help is that of --redis. The others may stand in the
// file and the environment.
func bindSome(flags *pflag.FlagSet, l *config.Sources, names []string, help string, arguments, connection []*config.Setting) {
	shown, rest := connection, []*config.Setting(nil)
	for _, setting := range config.ServiceSettings(&l.Service) {
		if !slices.Contains(names, setting.Name) {
			rest = append(rest, setting)
			continue
		}
		if setting.Name == "redis" {
			setting.Help = help
		}
		shown = append(shown, setting)
	}
	l.Bind(flags, arguments, shown)
	if redis := flags.Lookup("redis"); redis != nil {
		redis.DefValue = "" // without it a service is asked, or no store
	}
	l.Table = append(l.Table, rest...)
}

// said reports whether a flag was given, as flag, variable or in the file.
func (s *source) said(name string) bool {
	return s.weight(name) > 0 && s.Find(name).Value != config.Unsaid
}

// weight ranks the sources of a setting's value.
func (s *source) weight(name string) int {
	if setting := s.Find(name); setting != nil {
		return map[string]int{"file": 1, "environment": 2, "flag": 3}[setting.Source]
	}
	return 0
}

// direct reports whether to go straight to Redis: if it was named nearer to the command line than
// the service. The embedded store is the service's own, so a file or environment that names it
// means the service.
func (s *source) direct() (bool, error) {
	redis, server := s.weight("redis"), s.weight("server")
	embedded := s.Service.OnEmbedded()
	switch {
	case redis == 3 && server == 3:
		return false, errors.New("--server and --redis: name one of them")
	case redis == 3 && s.Find("redis").Value == "":
		return false, errors.New("--redis is empty: is the variable set that it comes from? $COATCHECK_REDIS needs no flag")
	case redis == 3 && embedded:
		return false, errors.New("--redis: the embedded store belongs to the service that runs it: ask that one, with --server")
	}
	return redis > server && !embedded, nil
}

// either runs a command at the one place or the other.
func (p *program) either(c *cobra.Command, s *source, atService func(*client.Client) error, atRedis func(*redisstore.Store) error) error {
	if err := s.Load(c.Flags(), p.getenv); err != nil {
		return configError(err)
	}
	direct, err := s.direct()
	if err != nil {
		return usageError{err}
	}
	p.waits(c)
	if direct {
		return p.straight(c, &s.Sources, atRedis)
	}
	service, err := s.client(0)
	if err != nil {
		return configError(err)
	}
	defer service.CloseIdleConnections()
	return unreached(atService(service))
}

// unreached adds to the error of a service that was not reached at all what to try.
func unreached(err error) error {
	if dial, ok := errors.AsType[*net.OpError](err); ok && dial.Op == "dial" {
		return fmt.Errorf("%w\nIs there a service (coatcheck serve)? --server names another, --redis goes straight to a Redis", err)
	}
	return err
}

// straight runs a command on its own connection to Redis.
func (p *program) straight(c *cobra.Command, s *config.Sources, atRedis func(*redisstore.Store) error) error {
	config := s.Service.Store
	if err := config.Check(); err != nil {
		return configError(err)
	}
	config.Logger = p.logger(&s.Service)
	redisstore.LogTo(config.Logger)
	if err := checkFit(c.Context(), config); err != nil {
		return err
	}
	store, err := redisstore.OpenConfig(c.Context(), config)
	if err != nil {
		return err
	}
	defer store.Close()
	return atRedis(store)
}
