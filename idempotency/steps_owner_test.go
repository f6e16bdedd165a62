package idempotency

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/coatcheck/coatcheck/redisstore"
)

// asOwner makes the test binary run as an owner, so that a test can kill it as kill -9 does.
const asOwner = "COATCHECK_TEST_AS_OWNER"

func TestMain(m *testing.M) {
	if os.Getenv(asOwner) != "" {
		if err := serveOwner(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// serveOwner is a service with one guarded handler, which asks at each step of its work what is to become of it.
func serveOwner() error {
	store, err := redisstore.Open(context.Background(), os.Getenv("OWNER_STORE"))
	if err != nil {
		return err
	}
	lease, err := time.ParseDuration(os.Getenv("OWNER_LEASE"))
	if err != nil {
		return err
	}
	route := Route{Name: "pay", Policy: Policy(os.Getenv("OWNER_POLICY")), Lease: lease}
	guarded := New(store, Config{}).Middleware(route)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ask("start")
		ask("effect")
		attempt, _ := FromContext(r.Context())
		w.WriteHeader(http.StatusCreated)
		fmt.Fprint(w, "paid by attempt ", attempt.Number)
	}))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(listener.Addr())
	return (&http.Server{Handler: guarded, ReadHeaderTimeout: time.Minute}).Serve(listener)
}

// ask tells the test that the handler has come to a step; the handler goes on, panics, or is no more.
func ask(step string) {
	response, err := http.Post(os.Getenv("OWNER_CONTROL")+"/"+step, "text/plain", http.NoBody)
	if err != nil {
		panic(err)
	}
	_ = response.Body.Close() // it is empty
	if response.StatusCode != http.StatusOK {
		panic("told to panic at " + step)
	}
}

// owner is such a service, as a process of its own that ends with the test.
type owner struct {
	cmd *exec.Cmd
	url string
}

func startOwner(t *testing.T, store, control string, policy Policy, lease time.Duration) *owner {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), asOwner+"=1", "OWNER_STORE="+store, "OWNER_CONTROL="+control, "OWNER_POLICY="+string(policy), "OWNER_LEASE="+lease.String())
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	o := &owner{cmd: cmd}
	t.Cleanup(func() {
		o.kill()
		_ = cmd.Wait() // it was killed
	})
	var address string
	if _, err := fmt.Fscanln(stdout, &address); err != nil {
		t.Fatalf("the owner does not come up: %v", err)
	}
	o.url = "http://" + address
	return o
}

func (o *owner) kill() { _ = o.cmd.Process.Kill() } // it may have ended

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
