package cli

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/coatcheck/coatcheck/cmd/coatcheck/internal/config"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/server"
)

func TestSettingsOfSegmentsAndDoors(t *testing.T) {
	read := func(args ...string) (*config.Service, error) {
		command := &cobra.Command{}
		l := config.BindService(command.Flags())
		err := errors.Join(command.ParseFlags(args), l.Load(command.Flags(), func(string) string { return "" }))
		return &l.Service, err
	}
	type segments struct {
		source     string
		period     time.Duration
		step       int64
		create     bool
		leaf       server.LeafDoor
		tokens     []server.TinyidToken
		opaqueKeys int
	}
	of := func(c *config.Service) segments {
		return segments{c.SegmentSource, c.Server.Segments.Period, c.Server.SegmentStep, !c.Server.KnownSegments, c.Server.Leaf, c.Server.TinyidTokens, len(c.Server.OpaqueKeys)}
	}
	c, err := read()
	expect.Error(t, "reading no settings", err, nil)
	expect.Error(t, "the check of the segments by default", c.Server.Segments.Check(), nil)
	expect.Equal(t, "settings by default", of(c), segments{source: "redis", period: 15 * time.Minute, step: 1000, create: true,
		leaf: server.LeafDoor{NoSegment: true, NoSnowflake: true, Pool: "leaf"}})
	args := []string{
		"--segment-create=false", "--leaf", "snowflake", "--leaf-pool", "p", "--tinyid-tokens", "a=x, b=y=z", "--opaque-keys", aKey("k", 1), "--segment-period", "1h",
		"--segment-step", "5",
	}
	c, err = read(args...)
	expect.Error(t, strings.Join(args, " "), err, nil)
	expect.Equal(t, strings.Join(args, " "), of(c), segments{
		source: "redis", period: time.Hour, step: 5, leaf: server.LeafDoor{NoSegment: true, Pool: "p"},
		tokens: []server.TinyidToken{{BizType: "a", Token: "x"}, {BizType: "b", Token: "y=z"}}, opaqueKeys: 1,
	})
	c, err = read("--leaf", "segment,snowflake")
	expect.Error(t, "both modes of Leaf", err, nil)
	expect.Equal(t, "both modes of Leaf", c.Server.Leaf, server.LeafDoor{Pool: "leaf"})
	for _, args := range [][]string{
		{"--segment-source", "sqlite://x"}, {"--segment-source", "mysql:"}, {"--segment-source", ""}, {"--segment-period", "0s"}, {"--segment-step", "0"}, {"--segment-step", "1000001"},
		{"--segment-create=perhaps"}, {"--leaf", "both"}, {"--leaf-pool", "a b"}, {"--leaf-pool", ""}, {"--tinyid-tokens", "a"}, {"--tinyid-tokens", "a="}, {"--tinyid-tokens", "=x"},
		{"--tinyid-tokens", "a=x,"}, {"--opaque-keys", "k:short"},
	} {
		execute(t, nil, append([]string{"config", "check"}, args...)...).exits(usage, strings.Split(args[0], "=")[0])
	}
}

func TestSecretsOfSegmentsAndDoorsAreNotShown(t *testing.T) {
	env := map[string]string{
		"COATCHECK_SEGMENT_SOURCE": "mysql://leaf:hunter2@h:3306/ids", "COATCHECK_TINYID_TOKENS": "orders=hunter2,events=hunter2", "COATCHECK_OPAQUE_KEYS": aKey("k1", 5),
	}
	execute(t, env, "config", "print").exits(done).conceals("hunter2", "BQUF").prints(`"mysql://leaf:***@h:3306/ids"`, `"orders=…,events=…"`, `"k1:…"`)
	for _, args := range [][]string{{"--segment-source", "mysq://leaf:hunter2@h"}, {"--tinyid-tokens", "hunter2"}, {"--segment-source", "mysql://leaf:hunter2%zz@h"}} {
		execute(t, nil, append([]string{"config", "check"}, args...)...).exits(usage).conceals("hunter2")
	}
}
