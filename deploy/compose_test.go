package deploy_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// A member of the Sentinel profile begins as a replica of the master that the sentinels name,
// whatever its file says from before; and as its file says where they name itself, or none answers.
func TestMemberFollowsTheMasterThatTheSentinelsName(t *testing.T) {
	script := memberScript(t)
	for _, row := range []struct{ name, file, sentinel, want string }{
		{"the first start", "", "exit 1", ""},
		{"it was master, and is", "port 6379\n", "echo member-1; echo 6379", "port 6379\n"},
		{"it was master, and another is", "port 6379\n", "echo member-2; echo 6379", "port 6379\nreplicaof member-2 6379\n"},
		{"it was the replica of another", "replicaof member-3 6379\nport 6379\n", "echo member-2; echo 6379", "port 6379\nreplicaof member-2 6379\n"},
		{"no sentinel answers", "replicaof member-3 6379\nport 6379\n", "echo 'Could not connect' >&2; exit 1", "replicaof member-3 6379\nport 6379\n"},
		{"a sentinel answers with an error", "port 6379\n", "echo 'ERR no such master'", "port 6379\n"},
		{"only the last sentinel answers", "port 6379\n", "case $* in *sentinel-3*) echo member-2;; *) exit 1;; esac", "port 6379\nreplicaof member-2 6379\n"},
	} {
		t.Run(row.name, func(t *testing.T) {
			folder := t.TempDir()
			conf := filepath.Join(folder, "redis.conf")
			if row.file != "" {
				write(t, conf, row.file, 0o600)
			}
			write(t, filepath.Join(folder, "redis-cli"), "#!/bin/sh\n"+row.sentinel+"\n", 0o700)
			write(t, filepath.Join(folder, "redis-server"), "#!/bin/sh\necho started with $*\n", 0o700)
			shell := exec.CommandContext(t.Context(), "sh", "-ec", strings.ReplaceAll(script, "/data/", folder+"/"))
			shell.Env = append(os.Environ(), "PATH="+folder+":"+os.Getenv("PATH"), "NAME=member-1", "ROLE=")
			out, err := shell.CombinedOutput()
			if err != nil {
				t.Fatalf("the member's command: %v\n%s", err, out)
			}
			expect.Equal(t, "what the member prints", string(out), fmt.Sprintf("started with %s\n", conf))
			text, err := os.ReadFile(conf)
			if err != nil {
				t.Fatalf("reading the configuration of the member: %v", err)
			}
			if row.file == "" {
				expect.Contains(t, "the file of the first start", string(text), "repl-diskless-sync-delay 0", "replica-announce-ip member-1")
				return
			}
			expect.Equal(t, "the member's file", string(text), row.want)
		})
	}
}

// memberScript is what member-1 runs, as the shell in its container gets it.
func memberScript(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../docker-compose.yml")
	if err != nil {
		t.Fatalf("reading docker-compose.yml: %v", err)
	}
	var file struct {
		Services map[string]struct {
			Command []string `yaml:"command"`
		} `yaml:"services"`
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatalf("docker-compose.yml as YAML: %v", err)
	}
	command := file.Services["member-1"].Command
	expect.MustEqual(t, "the words of member-1's command", len(command), 3)
	return strings.ReplaceAll(command[2], "$$", "$")
}

func write(t *testing.T, file, text string, mode os.FileMode) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), mode); err != nil {
		t.Fatalf("writing %s: %v", file, err)
	}
}
