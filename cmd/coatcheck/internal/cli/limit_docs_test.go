//go:build check

package cli

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/logtest"
	"github.com/coatcheck/coatcheck/internal/testing/proctest"
)

const limitsPage = "../../../../docs/limits.md"

// TestNginxAsksALimit runs the page's nginx before an app: a burst goes through, then requests are
// refused with the time to wait, and while coatcheck is away all go through.
func TestNginxAsksALimit(t *testing.T) {
	t.Parallel()
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/broken" {
			w.WriteHeader(http.StatusInternalServerError)
		}
		_, _ = io.WriteString(w, "the app")
	}))
	t.Cleanup(app.Close)
	service := serve(t)
	url := startNginx(t, map[string]string{
		"127.0.0.1:3000": strings.TrimPrefix(app.URL, "http://"), "127.0.0.1:8080": strings.TrimPrefix(service.banner.URL, "http://"),
		// so that a slow machine sees no refill
		`"rate":10,"per_ms":1000`: `"rate":10,"per_ms":3600000`,
	})
	ask := func(path string) (int, http.Header, string) {
		t.Helper()
		response, err := http.Get(url + path)
		expect.NoError(t, "ask the service", err)
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		expect.NoError(t, "read the answer", err)
		return response.StatusCode, response.Header, string(body)
	}
	status, _, body := ask("/broken")
	expect.Equal(t, "an answer of 500 of the app", []any{status, body}, []any{500, "the app"})
	for i := range 19 {
		status, header, body := ask("/")
		expect.MustEqual(t, "a request of the burst", []any{status, body}, []any{200, "the app"})
		expect.Contains(t, "header RateLimit", header.Get("Ratelimit"), `"limit";r=`+strconv.Itoa(18-i)+`;t=`)
	}
	status, header, _ := ask("/")
	expect.Equal(t, "a request beyond the burst: status", status, http.StatusTooManyRequests)
	if wait, err := strconv.Atoi(header.Get("Retry-After")); err != nil || wait < 1 || wait > 360 {
		t.Errorf("a request beyond the burst: Retry-After: got %q, want 1 to 360", header.Get("Retry-After"))
	}
	status, _, _ = ask("/_limit")
	expect.Equal(t, "a request for the limit from outside: status", status, http.StatusNotFound)
	service.stop()
	status, _, body = ask("/")
	expect.Equal(t, "a request while coatcheck is away", []any{status, body}, []any{200, "the app"})
}

// Who has one address of IPv6 has a network of them, and shares one limit with all of them, however
// each is written. A server for both kinds of addresses writes those of IPv4 in its own way.
func TestNginxCountsANetworkAsOneCaller(t *testing.T) {
	t.Parallel()
	app := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(app.Close)
	url := startNginx(t, map[string]string{
		"127.0.0.1:3000": strings.TrimPrefix(app.URL, "http://"), "127.0.0.1:8080": strings.TrimPrefix(serve(t).banner.URL, "http://"),
		`"rate":10,"per_ms":1000,"burst":20`: `"rate":1,"per_ms":3600000,"burst":10`,
		// so that the test can be any address
		"listen 127.0.0.1:8000;": "listen 127.0.0.1:8000; set_real_ip_from 127.0.0.1; real_ip_header X-Real-IP;",
	})
	for _, caller := range [][]string{
		{"192.0.2.1", "::ffff:192.0.2.1"},
		{"192.0.2.2"},
		{"2001:db8:1:2::", "2001:db8:1:2::1", "2001:db8:1:2:3::", "2001:db8:1:2:3:4:5:6", "2001:db8:1:2:0:4:0:6", "2001:DB8:1:2::0:9"},
		{"2001:db8:1:3::1"},
		{"2001:db8:1::", "2001:db8:1::1", "2001:db8:1:0:1::", "2001:db8:1:0:1:2:3:4", "2001:db8:1::2:3:4"},
		{"2001:db8::", "2001:db8::1", "2001:db8::1:2:3:4", "2001:db8:0:0:1::", "2001:db8::1:0:0:1"},
		{"2001:db8:0:1::1", "2001:db8:0:1:1:2:3:4", "2001:db8:0:1::"},
		{"2001::1:0:0:0:1", "2001:0:0:1::", "2001::1:1:2:3:4", "2001:0:0:1:0:0:1:1"},
		{"fd00::", "fd00::1", "fd00::1:2:3:4", "fd00::1:0:0:4"},
	} {
		through := 0
		for i := range 20 {
			request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
			expect.NoError(t, "make a request", err)
			request.Header.Set("X-Real-IP", caller[i%len(caller)])
			response, err := http.DefaultClient.Do(request)
			expect.NoError(t, "ask the service", err)
			response.Body.Close()
			if response.StatusCode == http.StatusOK {
				through++
			}
		}
		expect.Equal(t, "requests let through from "+strings.Join(caller, " and "), through, 10)
	}
}

// startNginx starts nginx with the page's file, in which some texts are replaced.
func startNginx(t *testing.T, replaced map[string]string) (url string) {
	t.Helper()
	text, err := os.ReadFile(limitsPage)
	expect.NoError(t, "read the page", err)
	_, conf, _ := strings.Cut(string(text), "```nginx\n")
	conf, _, _ = strings.Cut(conf, "```")
	port, err := proctest.Reserve()
	expect.NoError(t, "reserve a port", err)
	address := "127.0.0.1:" + strconv.Itoa(port.Number())
	for from, to := range replaced {
		if !strings.Contains(conf, from) {
			t.Fatalf("the page's nginx file lacks %s", from)
		}
		conf = strings.ReplaceAll(conf, from, to)
	}
	conf = strings.ReplaceAll(conf, "127.0.0.1:8000", address) // after a line with it was replaced
	folder := t.TempDir()
	var paths strings.Builder
	for _, kind := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		paths.WriteString(kind + "_temp_path " + kind + ";\n")
	}
	whole := "daemon off; master_process off; pid nginx.pid; error_log stderr;\nevents {}\nhttp {\naccess_log off;\n" + paths.String() + conf + "}\n"
	file := filepath.Join(folder, "nginx.conf")
	expect.NoError(t, "write the file", os.WriteFile(file, []byte(whole), 0o600))
	var out logtest.Text
	program, err := exec.LookPath("nginx")
	if err != nil {
		program = "/usr/sbin/nginx" // which is in root's path alone
	}
	command := exec.CommandContext(context.WithoutCancel(t.Context()), program, "-p", folder, "-c", file, "-e", "stderr")
	command.Stdout, command.Stderr = &out, &out
	port.Release()
	running, err := proctest.Start(command, syscall.SIGKILL)
	expect.NoError(t, "start the program", err)
	t.Cleanup(func() {
		running.End(syscall.SIGTERM)
		if t.Failed() {
			t.Logf("nginx:\n%s", out.String())
		}
	})
	expect.Eventually(t, "nginx answers", func() bool {
		client := http.Client{Timeout: time.Second}
		response, err := client.Head("http://" + address + "/_limit")
		if err == nil {
			response.Body.Close()
		}
		return err == nil
	})
	return "http://" + address
}
