package main

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/coatcheck/coatcheck/server"
)

func TestSettingsOfSegmentsAndDoors(t *testing.T) {
	read := func(args ...string) (*config, error) {
		command := &cobra.Command{}
		l := bindFlags(command.Flags())
		err := errors.Join(command.ParseFlags(args), l.load(command.Flags(), func(string) string { return "" }))
		return &l.config, err
	}
	c, err := read()
	if err != nil || c.segmentSource != "redis" || c.segments().Period != 15*time.Minute || c.segments().Check() != nil || c.segmentStep != 1000 || !c.segmentCreate || c.leaf != (server.LeafDoor{Pool: "leaf"}) || c.tinyidTokens != nil || c.opaqueKeys != nil {
		t.Errorf("%+v %v", c, err)
	}
	c, err = read("--segment-create=false", "--leaf", "snowflake", "--leaf-pool", "p", "--tinyid-tokens", "a=x, b=y=z", "--opaque-key", aKey("k", 1), "--segment-period", "1h", "--segment-step", "5")
	if err != nil || c.segmentCreate || c.leaf != (server.LeafDoor{NoSegment: true, Pool: "p"}) || len(c.opaqueKeys) != 1 || c.segments().Period != time.Hour || c.segmentStep != 5 ||
		!slices.Equal(c.tinyidTokens, []server.TinyidToken{{BizType: "a", Token: "x"}, {BizType: "b", Token: "y=z"}}) {
		t.Errorf("%+v %v", c, err)
	}
	if c, err = read("--leaf="); err != nil || !c.leaf.NoSegment || !c.leaf.NoSnowflake {
		t.Errorf("%+v %v", c, err)
	}
	for _, args := range [][]string{
		{"--segment-source", "sqlite://x"}, {"--segment-source", "mysql:"}, {"--segment-source", ""}, {"--segment-period", "0s"}, {"--segment-step", "0"}, {"--segment-step", "1000001"},
		{"--segment-create=perhaps"}, {"--leaf", "both"}, {"--leaf-pool", "a b"}, {"--leaf-pool", ""}, {"--tinyid-tokens", "a"}, {"--tinyid-tokens", "a="}, {"--tinyid-tokens", "=x"},
		{"--tinyid-tokens", "a=x,"}, {"--opaque-key", "k:short"},
	} {
		if code, _, stderr := coatcheck(t, nil, append([]string{"config", "check"}, args...)...); code != usage || !strings.Contains(stderr, strings.Split(args[0], "=")[0]) {
			t.Errorf("%q: %d %s", args, code, stderr)
		}
	}
}

func TestSecretsOfSegmentsAndDoorsAreNotShown(t *testing.T) {
	env := map[string]string{
		"COATCHECK_SEGMENT_SOURCE": "mysql://leaf:hunter2@h:3306/ids", "COATCHECK_TINYID_TOKENS": "orders=hunter2,events=hunter2", "COATCHECK_OPAQUE_KEY": aKey("k1", 5),
	}
	code, stdout, stderr := coatcheck(t, env, "config", "print")
	if code != done || strings.Contains(stdout+stderr, "hunter2") || strings.Contains(stdout, "BQUF") {
		t.Errorf("%d %s %s", code, stdout, stderr)
	}
	for _, shown := range []string{`"mysql://leaf:***@h:3306/ids"`, `"orders=…,events=…"`, `"k1:…"`} {
		if !strings.Contains(stdout, shown) {
			t.Errorf("no %s in\n%s", shown, stdout)
		}
	}
	for _, args := range [][]string{{"--segment-source", "mysq://leaf:hunter2@h"}, {"--tinyid-tokens", "hunter2"}, {"--segment-source", "mysql://leaf:hunter2%zz@h"}} {
		if code, stdout, stderr := coatcheck(t, nil, append([]string{"config", "check"}, args...)...); code != usage || strings.Contains(stdout+stderr, "hunter2") {
			t.Errorf("%q: %d %s %s", args, code, stdout, stderr)
		}
	}
}
