//go:build nightly

package prices

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/chaos/internal/chaostest"
)

// patience is how long anything may take that has to happen in the end.
const patience = 4 * time.Minute

// name is that of every counter, pool, lock and tag here. In a cluster all of them share a slot.
const name = "prices"

// measured is the path of the program to measure.
func measured(t *testing.T) string {
	t.Helper()
	if *program == "" {
		return chaostest.Coatcheck(t)
	}
	path, err := filepath.Abs(inTree(*program))
	if err == nil {
		_, err = os.Stat(path)
	}
	if err != nil {
		t.Fatalf("-program: %v", err)
	}
	return path
}

// service is a running `coatcheck serve`.
type service struct {
	*chaostest.Service

	client *http.Client
}

// serve starts a service, and returns when it says where it listens.
func serve(t *testing.T, program string, args ...string) *service {
	t.Helper()
	args = append([]string{"serve", "--json", "--listen", "127.0.0.1:0", "--access-log", "none", "--id-pool", name}, args...)
	s := &service{
		Service: chaostest.Serve(t, exec.CommandContext(context.Background(), program, args...)),
		client:  &http.Client{Transport: &http.Transport{}, Timeout: 10 * time.Second},
	}
	t.Cleanup(s.client.CloseIdleConnections)
	return s
}

// refusal is an answer that hands nothing out.
type refusal struct {
	status int
	body   string
}

func (r *refusal) Error() string { return fmt.Sprintf("status %d: %s", r.status, r.body) }

// ask sends a request, and reads the answer into a value unless that is nil.
func (s *service) ask(ctx context.Context, method, path string, body, into any, headers ...string) error {
	var sent io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return err
		}
		sent = bytes.NewReader(text)
	}
	request, err := http.NewRequestWithContext(ctx, method, s.URL+path, sent)
	if err != nil {
		return err
	}
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	answer, err := s.client.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return err
	}
	if answer.StatusCode >= 300 {
		return &refusal{answer.StatusCode, string(text)}
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(text, into)
}

// ids asks for ids of the pool.
func (s *service) ids(ctx context.Context, n int) ([]string, error) {
	var answer struct {
		IDs []string `json:"ids"`
	}
	err := s.ask(ctx, "GET", fmt.Sprintf("/id/snowflake/%s?n=%d", name, n), nil, &answer)
	return answer.IDs, err
}

// count asks for the counter's next value.
func (s *service) count(ctx context.Context) (int64, error) {
	var answer struct {
		Value int64 `json:"value"`
	}
	err := s.ask(ctx, "POST", "/incr/"+name, nil, &answer)
	return answer.Value, err
}

// segment asks for an id of the tag.
func (s *service) segment(ctx context.Context) (int64, error) {
	var answer struct {
		IDs []string `json:"ids"`
	}
	if err := s.ask(ctx, "GET", "/id/segment/"+name+"?n=1", nil, &answer); err != nil {
		return 0, err
	}
	return strconv.ParseInt(answer.IDs[0], 10, 64)
}

// grant is a lock that was granted.
type grant struct {
	Lease string `json:"lease"`
	Fence int64  `json:"fence"`
}

func (s *service) lock(ctx context.Context, ttl time.Duration) (grant, error) {
	var granted grant
	err := s.ask(ctx, "POST", "/lock/"+name, map[string]any{"ttl_ms": ttl.Milliseconds()}, &granted)
	return granted, err
}

func (s *service) unlock(ctx context.Context, granted grant) error {
	return s.ask(ctx, "DELETE", "/lock/"+name, nil, nil, "Lease-Token", granted.Lease)
}

// ready asks whether the service says that it is.
func (s *service) ready(ctx context.Context) error { return s.ask(ctx, "GET", "/readyz", nil, nil) }

// leased complains unless the service holds a worker id.
func (s *service) leased(ctx context.Context) error {
	var answer struct {
		WorkerIDs struct {
			Held int `json:"held"`
		} `json:"worker_ids"`
	}
	if err := s.ask(ctx, "GET", "/readyz", nil, &answer); err != nil {
		return err
	}
	if answer.WorkerIDs.Held == 0 {
		return fmt.Errorf("no worker id is held")
	}
	return nil
}

// until asks in a loop until it is given something, and returns how long that took from a moment.
func until(t *testing.T, what string, from time.Time, ask func(context.Context) error) time.Duration {
	t.Helper()
	chaostest.Await(t, patience, func() string {
		if err := ask(t.Context()); err != nil {
			return what + ": " + err.Error()
		}
		return ""
	})
	return time.Since(from)
}

// declare makes the pool, so that it is not taken for one that was lost.
func declare(t *testing.T, program string, store ...string) {
	t.Helper()
	args := append([]string{"worker", "create", name}, store...)
	if out, err := exec.CommandContext(t.Context(), program, args...).CombinedOutput(); err != nil {
		t.Fatalf("coatcheck worker create: %v\n%s", err, out)
	}
}
