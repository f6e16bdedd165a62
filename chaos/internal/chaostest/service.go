package chaostest

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// Service is a process that answers at an address.
type Service struct {
	*Process

	URL   string
	Admin string // where its own pages are; "" = at URL
	Log   *Tail
}

// logLines of a service are shown if the test fails.
const logLines = 20

// Serve starts a command, and returns when its first line says where it answers: a banner in JSON,
// or an address alone.
func Serve(t testing.TB, command *exec.Cmd) *Service {
	t.Helper()
	s := &Service{Log: &Tail{}}
	command.Stderr = s.Log
	stdout, err := command.StdoutPipe()
	if err != nil {
		t.Fatalf("a pipe for what %v says: %v", command.Args, err)
	}
	s.Process = Start(t, command)
	t.Cleanup(func() {
		if lines := strings.Split(strings.TrimSpace(s.Log.String()), "\n"); t.Failed() && lines[0] != "" {
			t.Logf("the log of %s ends:\n%s", s.URL, strings.Join(lines[max(0, len(lines)-logLines):], "\n"))
		}
	})
	line, err := bufio.NewReader(stdout).ReadString('\n')
	banner := struct {
		URL   string `json:"url"`
		Admin string `json:"admin_url"`
	}{}
	if err == nil && json.Unmarshal([]byte(line), &banner) != nil {
		banner.URL = "http://" + strings.TrimSpace(line)
	}
	if s.URL, s.Admin = banner.URL, banner.Admin; s.URL == "" {
		s.Kill()
		t.Fatalf("%v says where it answers: got %q and error %v, want a banner\n%s", command.Args, line, err, s.Log)
	}
	return s
}

// program is the coatcheck of this tree, built once for all tests of a binary.
var program struct {
	sync.Mutex
	folder, path string
}

// Coatcheck builds the program as a user would, unless a test has done so, and returns its path. It
// stays until [Main] ends.
func Coatcheck(t testing.TB) string {
	t.Helper()
	program.Lock()
	defer program.Unlock()
	if program.path == "" {
		folder, err := os.MkdirTemp("", "coatcheck-chaos") //nolint:usetesting // it outlives the test
		if err != nil {
			t.Fatalf("a folder for the program: %v", err)
		}
		program.folder = folder
		built := filepath.Join(folder, "coatcheck")
		buildIn(t, ".", built, "github.com/coatcheck/coatcheck/cmd/coatcheck")
		program.path = built
	}
	return program.path
}
