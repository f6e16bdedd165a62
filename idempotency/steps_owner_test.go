package idempotency

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/redisstore"
)

// asOwner makes the test binary run as an owner, so that a test can kill it as kill -9 does.
const asOwner = "COATCHECK_TEST_AS_OWNER"

// ownerPatience is how long an owner waits for Redis. Here connections break; none is silent.
const ownerPatience = 30 * time.Second

func TestMain(m *testing.M) {
	if os.Getenv(asOwner) != "" {
		if err := serveOwner(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	// some of these tests are about servers that are away
	redisstore.LogTo(slog.New(slog.DiscardHandler))
	goleak.VerifyTestMain(m)
}

// serveOwner is an owner in a process of its own.
func serveOwner() error {
	store, err := redisstore.OpenConfig(context.Background(), redisstore.Config{URL: os.Getenv("OWNER_STORE"), Prefix: os.Getenv("OWNER_PREFIX"), Timeout: ownerPatience})
	if err != nil {
		return err
	}
	guarded := guardedBy(New(store, Config{}), os.Getenv("OWNER_CONTROL"), Policy(os.Getenv("OWNER_POLICY")))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(listener.Addr())
	return (&http.Server{Handler: guarded, ReadHeaderTimeout: time.Minute}).Serve(listener)
}

// guardedBy is a service with one guarded handler, which asks at each step of its work what to do.
// No lease ends by itself while a test runs.
func guardedBy(tokens *Tokens, control string, policy Policy) http.Handler {
	return tokens.Middleware(Route{Name: "pay", Policy: policy, Lease: time.Hour})(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ask(control, "start")
		ask(control, "effect")
		attempt, _ := FromContext(r.Context())
		w.WriteHeader(http.StatusCreated)
		fmt.Fprint(w, "paid by attempt ", attempt.Number)
	}))
}

// ask reports a step of the handler to the test; then the handler goes on, panics, or is killed.
func ask(control, step string) {
	response, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Post(control+"/"+step, "text/plain", http.NoBody)
	if err != nil {
		panic(err)
	}
	_ = response.Body.Close() // it is empty
	if response.StatusCode != http.StatusOK {
		panic("told to panic at " + step)
	}
}

// owner is such a service. It ends with the test.
type owner struct {
	url  string
	kill func() // returns when the process has ended; nil for an owner in the test's process
}

// serveHere starts an owner within the test's own process.
func serveHere(t *testing.T, tokens *Tokens, control string, policy Policy) *owner {
	t.Helper()
	service := httptest.NewUnstartedServer(guardedBy(tokens, control, policy))
	// handlers that panic are part of the test
	service.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
	service.Start()
	t.Cleanup(service.Close)
	return &owner{url: service.URL}
}

// startOwner starts an owner as a process of its own.
func startOwner(t *testing.T, store redistest.Space, control string, policy Policy) *owner {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), asOwner+"=1", "OWNER_STORE="+store.URL, "OWNER_PREFIX="+store.Prefix, "OWNER_CONTROL="+control, "OWNER_POLICY="+string(policy))
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatalf("a pipe for the owner: %v", err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatalf("starting the owner: %v", err)
	}
	o := &owner{kill: sync.OnceFunc(func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()         // it was killed
	})}
	t.Cleanup(o.kill)
	var address string
	if _, err := fmt.Fscanln(stdout, &address); err != nil {
		t.Fatalf("the owner does not come up: %v", err)
	}
	o.url = "http://" + address
	return o
}

// pay asks an owner, once: the answer's status and body, or 0 if there was no answer.
func (o *owner) pay(ctx context.Context, key string) (status int, body string) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, o.url+"/pay", strings.NewReader("12.99"))
	if err != nil {
		return 0, err.Error()
	}
	request.Header.Set(KeyHeader, strconv.Quote(key))
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = response.Body.Close() }() // it is read
	text := make([]byte, 1000)
	n, _ := response.Body.Read(text) // a short one comes at once
	return response.StatusCode, string(text[:n])
}
