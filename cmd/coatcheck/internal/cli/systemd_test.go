package cli

import (
	"errors"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/coatcheck/coatcheck/cmd/coatcheck/internal/config"
)

var units = []string{"deploy/systemd/coatcheck.service", "deploy/systemd/coatcheck-gateway.service"}

// The units start this program with flags that it has, stop it later than it stops by itself, and
// let it do no more than it needs.
func TestUnitsAgreeWithTheProgram(t *testing.T) {
	for _, name := range units {
		for _, fault := range unitFaults(readRoot(t, name)) {
			t.Errorf("fault of %s: %s", name, fault)
		}
	}
}

// Each row breaks one thing in the service's unit, and must be found.
func TestBrokenUnitsAreFound(t *testing.T) {
	for _, row := range []struct{ name, old, new, fault string }{
		{"another command", "coatcheck serve", "coatcheck server", "ExecStart: server is no command"},
		{"another flag", "--config", "--configuration", "ExecStart: no flag --configuration"},
		{"unknown setting", "COATCHECK_DRAIN_DELAY", "COATCHECK_DRAIN", "no setting COATCHECK_DRAIN"},
		{"killed before it has stopped", "TimeoutStopSec=60s", "TimeoutStopSec=49s", "TimeoutStopSec 49s does not outlast"},
		{"a credential that is not passed", "LoadCredential=coatcheck.yaml:", "LoadCredential=config.yaml:", "coatcheck.yaml of ExecStart is no credential"},
		{"a password in the open", "coatcheck.yaml\nWorking", "coatcheck.yaml\nEnvironment=COATCHECK_REDIS=redis://:secret@localhost\nWorking", "COATCHECK_REDIS is a secret's place"},
		{"reload by another signal", "kill -HUP", "kill -USR1", "ExecReload is not kill -HUP"},
		{"runs as root", "DynamicUser=yes", "", "DynamicUser is not yes"},
		{"capabilities", "CapabilityBoundingSet=\n", "CapabilityBoundingSet=CAP_NET_ADMIN\n", "CapabilityBoundingSet is not empty"},
		{"writes to the system", "ProtectSystem=strict", "ProtectSystem=full", "ProtectSystem is not strict"},
		{"dumps of its memory", "LimitCORE=0", "LimitCORE=infinity", "LimitCORE is not 0"},
		{"any system call", "SystemCallFilter=@system-service\n", "", "SystemCallFilter is not @system-service"},
		{"misspelled section", "[Service]", "[Servcie]", "unknown section [Servcie]"},
		{"no form of a line", "Restart=always", "Restart always", "no setting: Restart always"},
	} {
		t.Run(row.name, func(t *testing.T) {
			text := readRoot(t, units[0])
			broken := strings.Replace(text, row.old, row.new, 1)
			if broken == text {
				t.Fatalf("the unit does not hold %q: this row breaks nothing", row.old)
			}
			if faults := unitFaults(broken); !slices.ContainsFunc(faults, func(fault string) bool { return strings.Contains(fault, row.fault) }) {
				t.Errorf("no fault %q, but: %q", row.fault, faults)
			}
		})
	}
}

// narrow is what a unit has to say, so that the program can do no more than it needs.
var narrow = map[string]string{
	"DynamicUser": "yes", "NoNewPrivileges": "yes", "ProtectSystem": "strict", "ProtectHome": "yes", "PrivateTmp": "yes", "PrivateDevices": "yes", "PrivateUsers": "yes",
	"ProtectKernelTunables": "yes", "ProtectKernelModules": "yes", "ProtectKernelLogs": "yes", "ProtectControlGroups": "yes", "ProtectClock": "yes", "ProtectHostname": "yes",
	"ProtectProc": "invisible", "RestrictNamespaces": "yes", "RestrictRealtime": "yes", "RestrictSUIDSGID": "yes", "LockPersonality": "yes", "MemoryDenyWriteExecute": "yes",
	"RestrictAddressFamilies": "AF_INET AF_INET6 AF_UNIX", "SystemCallArchitectures": "native", "CapabilityBoundingSet": "", "Type": "exec", "Restart": "always", "LimitCORE": "0",
}

// unitFaults finds what is wrong with a unit of this program.
func unitFaults(text string) (faults []string) {
	unit, faults := readUnit(text)
	faulty := func(fault string) { faults = append(faults, fault) }
	for key, want := range narrow {
		said, ok := unit[key]
		switch {
		case !ok || !slices.Equal(said, []string{want}) && want != "":
			faulty(key + " is not " + want)
		case want == "" && !slices.Equal(said, []string{""}):
			faulty(key + " is not empty")
		}
	}
	if !slices.Contains(unit["SystemCallFilter"], "@system-service") {
		faulty("SystemCallFilter is not @system-service")
	}
	if reload := strings.Join(unit["ExecReload"], " "); reload != "/bin/kill -HUP $MAINPID" {
		faulty("ExecReload is not kill -HUP")
	}
	words := strings.Fields(strings.Join(unit["ExecStart"], " "))
	if len(words) < 2 || words[0] != "/usr/local/bin/coatcheck" {
		return append(faults, "ExecStart: not this program")
	}
	if err := checkArguments(words[1:]); err != nil {
		faulty("ExecStart: " + err.Error())
	}
	for _, word := range words {
		if file, ok := strings.CutPrefix(word, "${CREDENTIALS_DIRECTORY}/"); ok && !slices.Contains(unit["LoadCredential"], file+":/etc/coatcheck/"+file) {
			faulty(file + " of ExecStart is no credential")
		}
	}
	env := map[string]string{}
	for assignment := range strings.FieldsSeq(strings.Join(unit["Environment"], " ")) {
		name, value, _ := strings.Cut(assignment, "=")
		env[name] = value
		if secretName.MatchString(name) || name == "COATCHECK_REDIS" {
			faulty(name + " is a secret's place, which is the credential")
		}
	}
	d := &deployment{}
	c := d.configOf("Environment", env)
	faults = append(faults, d.faults...)
	stop, err := time.ParseDuration(strings.Join(unit["TimeoutStopSec"], " "))
	if least := c.Server.DrainDelay + stopsWithin(c); err != nil || stop < least {
		faulty("TimeoutStopSec " + stop.String() + " does not outlast drain delay and stop timeout, and 5 s: " + least.String())
	}
	return faults
}

// readUnit reads a unit's settings, whichever section they are in. A setting may be there more than
// once.
func readUnit(text string) (settings map[string][]string, faults []string) {
	settings = map[string][]string{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		name, value, ok := strings.Cut(line, "=")
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "["):
			if !slices.Contains([]string{"[Unit]", "[Service]", "[Install]"}, line) {
				faults = append(faults, "unknown section "+line)
			}
		case !ok:
			faults = append(faults, "no setting: "+line)
		default:
			settings[name] = append(settings[name], value)
		}
	}
	return settings, faults
}

// ownCommand is the program's root command. To put it together takes as long as all that is looked
// up in it.
var ownCommand = sync.OnceValue(func() *cobra.Command { return (&program{}).command() })

// checkArguments reports whether this program has a command and the flags that follow it.
// What follows two dashes is another program's.
func checkArguments(words []string) error {
	if end := slices.Index(words, "--"); end >= 0 {
		words = words[:end]
	}
	found, rest, err := ownCommand().Find(words)
	if err != nil || len(words) == 0 || !found.Runnable() || !found.HasParent() {
		return errors.New(strings.Join(words[:min(1, len(words))], "") + " is no command")
	}
	for _, word := range rest {
		if name, ok := strings.CutPrefix(word, "--"); ok && !hasFlag(found, name) {
			return errors.New("no flag --" + name)
		}
	}
	return nil
}

func hasFlag(command *cobra.Command, said string) bool {
	name, _, _ := strings.Cut(said, "=")
	return command.Flags().Lookup(name) != nil || command.InheritedFlags().Lookup(name) != nil
}

// stopsWithin is how long a stop takes at most after the drain delay: requests under way end, what
// is cut off says so, and late answers are recorded.
func stopsWithin(c *config.Service) time.Duration {
	requests := c.Server.StopTimeout
	if requests == 0 {
		requests = max(c.Server.RequestTimeout, 30*time.Second) + 5*time.Second
	}
	return requests + 10*time.Second
}

// Deployments with a stop timeout of their own have one that no request outlasts. The chart has
// none: the program's follows from requestSeconds, and TestManifestsAgreeWithTheProgram holds the
// grace period against that.
func TestDeploymentsStopLaterThanTheLongestRequest(t *testing.T) {
	for _, file := range []string{"deploy/systemd/coatcheck.service", "deploy/systemd/coatcheck-gateway.service", "deploy/kubernetes/coatcheck.yaml"} {
		if text := readRoot(t, file); !regexp.MustCompile(`(?i)stop[-_]timeout[^\n]*35s`).MatchString(text) {
			t.Errorf("%s has no stop timeout of 35s: a request may take 30 s by default", file)
		}
	}
}
