//go:build compose

package containers_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v4"
)

// The images of the test, in the place of those that docker-compose.yml names.
const (
	redisImage   = "redis-of-this-machine"
	valkeyImage  = "valkey-of-this-machine"
	serviceImage = "coatcheck:built"
)

// project is docker-compose.yml with other images and ports.
type project struct {
	*engine

	file string
}

// newProject writes the file that is run: services' images are those of the test, and their ports
// are free ones of the loopback.
func newProject(t *testing.T, e *engine, service string) *project {
	t.Helper()
	text, err := os.ReadFile("../../docker-compose.yml")
	must(t, err)
	var file map[string]any
	must(t, yaml.Unmarshal(text, &file))
	for name, one := range file["services"].(map[string]any) {
		of := one.(map[string]any)
		switch image, _ := of["image"].(string); {
		case image == "coatcheck":
			delete(of, "build")
			of["image"], of["ports"] = service, []string{"127.0.0.1::8080"}
		case strings.HasPrefix(image, "redis:"):
			of["image"] = redisImage
		case strings.HasPrefix(image, "valkey/"):
			of["image"] = valkeyImage
		default:
			delete(file["services"].(map[string]any), name)
		}
	}
	maps.DeleteFunc(file, func(name string, _ any) bool { return strings.HasPrefix(name, "x-") })
	file["version"] = "3.8" // docker-compose of Debian takes one without for the first format
	text, err = yaml.Marshal(file)
	must(t, err)
	p := &project{e, filepath.Join(t.TempDir(), "docker-compose.yml")}
	must(t, os.WriteFile(p.file, text, 0o600))
	return p
}

// compose runs docker-compose on the project, with a profile if it is not "".
func (p *project) compose(t *testing.T, profile string, args ...string) string {
	t.Helper()
	all := []string{"-f", p.file}
	if profile != "" {
		all = append(all, "--profile", profile)
	}
	out, err := p.try(t.Context(), "docker-compose", append(all, args...)...)
	if err != nil {
		t.Fatalf("docker-compose: %v", err)
	}
	return out
}

// container is the id of a service's container.
func (p *project) container(t *testing.T, profile, service string) string {
	t.Helper()
	return p.compose(t, profile, "ps", "-q", service)
}

// up starts services and waits until their containers are healthy.
func (p *project) up(t *testing.T, profile string, services ...string) {
	t.Helper()
	began := time.Now()
	p.compose(t, profile, append([]string{"up", "-d", "--no-build"}, services...)...)
	for _, service := range services {
		id := p.container(t, profile, service)
		eventually(t, service+" is healthy", func() bool { return p.docker(t, "inspect", "-f", "{{.State.Health.Status}}", id) == "healthy" })
	}
	t.Logf("%s: healthy after %.1f s", strings.Join(services, ", "), time.Since(began).Seconds())
}

// down ends a profile's containers, and throws their data away.
func (p *project) down(t *testing.T, profile string) {
	t.Helper()
	t.Cleanup(func() {
		args := []string{"-f", p.file}
		if profile != "" {
			args = append(args, "--profile", profile)
		}
		ctx := context.WithoutCancel(t.Context())
		if t.Failed() {
			logs, err := p.try(ctx, "docker-compose", append(args, "logs", "--no-color", "--tail", "20")...)
			t.Logf("the containers' logs: %v\n%s", err, logs)
		}
		if _, err := p.try(ctx, "docker-compose", append(args, "down", "-v", "--timeout", "5")...); err != nil {
			t.Errorf("docker-compose down: %v", err)
		}
	})
}

// service is a coatcheck in a container, as a client on this machine reaches it.
type service struct {
	url string
}

func (p *project) service(t *testing.T, profile, name string) service {
	t.Helper()
	return service{"http://" + p.compose(t, profile, "port", name, "8080")}
}

// ask sends a request; the answer's JSON is read into a value, if it is not nil.
func (s service) ask(ctx context.Context, method, path string, into any) (status int, err error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, s.url+path, nil)
	if err != nil {
		return 0, err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return answer.StatusCode, err
	}
	if answer.StatusCode/100 == 2 && into != nil {
		return answer.StatusCode, json.Unmarshal(text, into)
	}
	return answer.StatusCode, nil
}

// incr adds 1 to a counter; 0 where that failed.
func (s service) incr(ctx context.Context, key string) int64 {
	var got struct{ Value int64 }
	status, err := s.ask(ctx, http.MethodPost, "/incr/"+key, &got)
	if err != nil || status != http.StatusOK {
		return 0
	}
	return got.Value
}

// serves checks what people come for: a token, a counter, an id.
func (s service) serves(t *testing.T) {
	t.Helper()
	for _, one := range []struct {
		method, path string
		status       int
	}{{"POST", "/token", 201}, {"POST", "/incr/orders", 200}, {"GET", "/id/snowflake", 200}, {"GET", "/id/segment/customers", 200}, {"GET", "/readyz", 200}} {
		var status int
		var err error
		// a fresh Redis may have lost a pool: its first worker id comes with the end of a wait
		eventually(t, fmt.Sprintf("%s %s is answered with %d", one.method, one.path, one.status), func() bool {
			status, err = s.ask(t.Context(), one.method, one.path, nil)
			return err == nil && status == one.status
		})
	}
}
