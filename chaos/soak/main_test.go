//go:build check && linux

package soak

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/coatcheck/coatcheck/access"
	"github.com/coatcheck/coatcheck/chaos/internal/chaostest"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/redisstore"
)

var minutes = flag.Float64("minutes", 0, "how long the soak takes; 0 = 10 s")

func TestMain(m *testing.M) {
	flag.Parse()
	redisstore.LogTo(slog.New(slog.DiscardHandler))
	code := m.Run()
	built.Remove()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// built is the program, one for all tests.
var built chaostest.Program

// rig is a Redis, a service that asks for keys, and a gateway in front of the service.
type rig struct {
	t       *testing.T
	key     string
	service *process
	gateway *process
}

func newRig(t *testing.T, serve ...string) *rig {
	t.Helper()
	return newRigOn(t, redistest.Start(t).URL(), serve...)
}

// newRigOn is newRig on a Redis that is there. The gateway keeps answers for a day, as the demo
// does: what lives for a minute would follow how many clients the machine has time for.
func newRigOn(t *testing.T, redis string, serve ...string) *rig {
	t.Helper()
	r := &rig{t: t}
	binary := built.Path(t)
	key := access.NewKey()
	r.key = key.Text()
	keys := "COATCHECK_ACCESS_KEYS=" + key.ID + ":use:soak::" + key.Hash().String()
	// a busy machine is none of what is looked for
	common := []string{"--redis", redis, "--listen", "127.0.0.1:0", "--log-level", "error", "--json", "--store-timeout", "20s"}
	r.service = start(t, "serve", binary, r.key, keys, append(append([]string{"serve", "--dev"}, common...), serve...)...)
	routes := filepath.Join(t.TempDir(), "routes.yaml")
	expect.NoError(t, "os.WriteFile", os.WriteFile(routes, []byte("routes: [{match: POST /payments, lease_ms: 20000}]\n"), 0o600))
	r.gateway = start(t, "gateway", binary, "", "NONE=", append([]string{"gateway", "--upstream", r.service.url, "--routes", routes, "--admin", "127.0.0.1:0", "--body-timeout", "2s"}, common...)...)
	return r
}

// process is one of them, as it is seen from outside.
type process struct {
	*chaostest.Process

	mu      sync.Mutex // guards the process and its id, see replace
	name    string
	pid     int
	args    []string // it was started with, and what was in its environment
	env     string
	url     string
	addr    string
	metrics string // where they are
	key     string // that shows them; "" = none is needed
	said    *tail
}

func start(t *testing.T, name, binary, key, variable string, args ...string) *process {
	t.Helper()
	p := &process{name: name, key: key, said: &tail{}, args: append([]string{binary}, args...), env: variable}
	p.launch(t)
	return p
}

// launch starts the process, and returns when it answers.
func (p *process) launch(t *testing.T) {
	t.Helper()
	name, said := p.name, p.said
	command := exec.Command(p.args[0], p.args[1:]...)
	command.Env = append(os.Environ(), p.env)
	command.Stderr = said
	read, write, err := os.Pipe()
	expect.NoError(t, "os.Pipe", err)
	command.Stdout = write
	p.mu.Lock()
	p.Process = chaostest.Start(t, command)
	p.pid = command.Process.Pid
	p.mu.Unlock()
	_ = write.Close()
	defer read.Close()
	var banner struct {
		URL   string `json:"url"`
		Admin string `json:"admin_url"`
	}
	if err := json.NewDecoder(read).Decode(&banner); err != nil {
		t.Fatalf("%s shows no banner: %v\n%s", name, err, said)
	}
	if p.url != "" { // it is another one in its place
		p.await(t)
		return
	}
	p.url, p.addr, p.metrics = banner.URL, strings.TrimPrefix(banner.URL, "http://"), banner.Admin+"/metrics"
	if banner.Admin == "" {
		p.metrics = banner.URL + "/metrics"
	}
	p.await(t)
}

// replace kills the process, and starts another one in its place, where clients find it.
func (p *process) replace(t *testing.T) {
	t.Helper()
	p.Kill()
	p.args = append(p.args, "--listen", p.addr)
	if admin, is := strings.CutPrefix(strings.TrimSuffix(p.metrics, "/metrics"), "http://"); is && admin != p.addr {
		p.args = append(p.args, "--admin", admin)
	}
	p.launch(t)
}

func (p *process) await(t *testing.T) {
	t.Helper()
	chaostest.Await(t, time.Minute, func() string {
		client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
		response, err := client.Get(p.url + "/livez")
		if err != nil {
			return err.Error()
		}
		response.Body.Close()
		return ""
	})
}

// tail keeps the end of what a process says.
type tail struct {
	mu   sync.Mutex
	text []byte
}

func (s *tail) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text = append(s.text, p...)
	if over := len(s.text) - 64<<10; over > 0 {
		s.text = append([]byte(nil), s.text[over:]...)
	}
	return len(p), nil
}

func (s *tail) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return string(s.text)
}

// do asks the service, with its key.
func (r *rig) do(client *http.Client, p *process, method, path, body string, header ...string) (status int, text string, err error) {
	request, err := http.NewRequestWithContext(r.t.Context(), method, p.url+path, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	request.Header.Set("Authorization", "Bearer "+r.key)
	for _, one := range header {
		name, value, _ := strings.Cut(one, ": ")
		request.Header.Set(name, value)
	}
	response, err := client.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	all, err := io.ReadAll(response.Body)
	return response.StatusCode, string(all), err
}
