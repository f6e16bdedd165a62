//go:build check

package chaos

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/coatcheck/coatcheck/idempotency"
	"github.com/coatcheck/coatcheck/redisstore"
)

// What the test binary is when a test has started it as a process of its own.
const (
	upstreamRole = "upstream" // the service behind the gateways, guarded by nothing
	ownerRole    = "owner"    // a service that guards its handler itself, with the middleware
	naiveRole    = "naive"    // … with a middleware as many have written it
)

// play is a process in a role. It prints its address and serves until it is killed.
func play(role string) error {
	mux := http.NewServeMux()
	for _, policy := range []idempotency.Policy{idempotency.PolicyHold, idempotency.PolicyTakeover} {
		handler, err := inRole(role, policy)
		if err != nil {
			return err
		}
		mux.Handle("POST /"+string(policy), handler)
	}
	listener, err := listen(os.Getenv("CHAOS_SOCKET"))
	if err != nil {
		return err
	}
	fmt.Println(listener.Addr())
	return (&http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}).Serve(listener)
}

func listen(socket string) (net.Listener, error) {
	if socket == "" {
		return net.Listen("tcp", cmp.Or(os.Getenv("CHAOS_HOST"), "127.0.0.1")+":0")
	}
	if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	return net.Listen("unix", socket)
}

func inRole(role string, policy idempotency.Policy) (http.Handler, error) {
	lease, err := time.ParseDuration(os.Getenv("CHAOS_LEASE"))
	if err != nil {
		return nil, err
	}
	switch role {
	case upstreamRole:
		return http.HandlerFunc(work), nil
	case naiveRole:
		return newNaive(os.Getenv("CHAOS_STORE"), lease, http.HandlerFunc(work))
	}
	ack, err := strconv.Atoi(os.Getenv("CHAOS_ACK"))
	if err != nil {
		return nil, err
	}
	store, err := redisstore.OpenConfig(context.Background(), redisstore.Config{URL: os.Getenv("CHAOS_STORE"), Ack: ack, Timeout: storeTimeout})
	if err != nil {
		return nil, err
	}
	route := idempotency.Route{Policy: policy, Lease: lease}
	return idempotency.New(store, idempotency.Config{}).Middleware(route)(http.HandlerFunc(work)), nil
}

// work is what every handler here does: it has an effect, takes a few milliseconds before it and
// after it, or as long as the request asks for, and tells the book of each of its steps. It goes on
// when the client or the gateway is no more.
func work(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler) // the request did not come whole: nothing was begun
	}
	fence := r.Header.Get("Idempotency-Fence")
	if attempt, ok := idempotency.FromContext(r.Context()); ok {
		fence = strconv.FormatInt(attempt.Fence, 10)
	}
	operation, _, _ := strings.Cut(string(body), " ")
	number := tell(begun, operation, fence, "")
	takeTime(r)
	tell(effected, operation, fence, number)
	takeTime(r)
	text := tell(ended, operation, fence, number)
	w.WriteHeader(http.StatusCreated)
	fmt.Fprint(w, text)
	if strings.HasSuffix(operation, largeMark) {
		fmt.Fprint(w, strings.Repeat(" ", 1<<20))
	}
}

// largeMark ends the names of operations whose answers have 1 MiB.
const largeMark = "-large"

// takeTime takes half of the time that the request asks for, or a few milliseconds.
func takeTime(r *http.Request) {
	if asked, err := time.ParseDuration(r.URL.Query().Get("takes")); err == nil {
		time.Sleep(asked / 2)
		return
	}
	time.Sleep(3*time.Millisecond + rand.N(12*time.Millisecond))
}

// tell tells the book of a step, and waits until it is written down.
func tell(step step, operation, fence, run string) string {
	query := url.Values{"operation": {operation}, "fence": {fence}, "run": {run}}
	response, err := http.Post(os.Getenv("CHAOS_BOOK")+"/"+string(step)+"?"+query.Encode(), "text/plain", http.NoBody)
	if err != nil {
		panic(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		panic(fmt.Sprint("the book: ", response.StatusCode, string(text), err))
	}
	return string(text)
}
