//go:build check && linux

package soak

import (
	"cmp"
	"flag"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/access"
	"github.com/coatcheck/coatcheck/chaos/internal/chaostest"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
)

var minutes = flag.Float64("minutes", 0, "how long the soak takes; 0 = 10 s")

func TestMain(m *testing.M) { chaostest.Main(m, nil) }

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
	binary := chaostest.Coatcheck(t)
	key := access.NewKey()
	r.key = key.Text()
	keys := "COATCHECK_ACCESS_KEYS=" + key.ID + ":use:soak::" + key.Hash().String()
	// a busy machine is none of what is looked for
	common := []string{"--redis", redis, "--listen", "127.0.0.1:0", "--log-level", "error", "--json", "--store-timeout", "20s"}
	r.service = start(t, "serve", binary, r.key, keys, append(append([]string{"serve", "--dev"}, common...), serve...)...)
	routes := filepath.Join(t.TempDir(), "routes.yaml")
	expect.NoError(t, "os.WriteFile", os.WriteFile(routes, []byte("routes: [{match: POST /payments, lease_ms: 20000}]\n"), 0o600))
	r.gateway = start(t, "gateway", binary, "", "NONE=", append([]string{"gateway", "--upstream", r.service.url, "--routes", routes, "--admin-listen", "127.0.0.1:0", "--body-timeout", "2s"}, common...)...)
	return r
}

// process is one of them, as it is seen from outside. Another one may take its place.
type process struct {
	mu   sync.Mutex // guards now, see replace
	now  *chaostest.Service
	said []*chaostest.Tail // by all that have been in its place

	name    string
	args    []string // it was started with, and what was in its environment
	env     string
	url     string
	addr    string
	metrics string // where they are
	key     string // that shows them; "" = none is needed
}

func start(t *testing.T, name, binary, key, variable string, args ...string) *process {
	t.Helper()
	p := &process{name: name, key: key, args: append([]string{binary}, args...), env: variable}
	p.launch(t)
	now := p.process()
	p.url, p.addr, p.metrics = now.URL, strings.TrimPrefix(now.URL, "http://"), cmp.Or(now.Admin, now.URL)+"/metrics"
	p.await(t)
	return p
}

func (p *process) launch(t *testing.T) {
	t.Helper()
	command := exec.Command(p.args[0], p.args[1:]...)
	command.Env = append(os.Environ(), p.env)
	started := chaostest.Serve(t, command)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now, p.said = started, append(p.said, started.Log)
}

// process is the one that runs now.
func (p *process) process() *chaostest.Service {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.now
}

// replace kills the process, and starts another one in its place, where clients find it.
func (p *process) replace(t *testing.T) {
	t.Helper()
	p.process().Kill()
	p.args = append(p.args, "--listen", p.addr)
	if admin, is := strings.CutPrefix(strings.TrimSuffix(p.metrics, "/metrics"), "http://"); is && admin != p.addr {
		p.args = append(p.args, "--admin-listen", admin)
	}
	p.launch(t)
	p.await(t)
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
