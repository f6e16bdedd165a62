package client_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/client"
	"github.com/coatcheck/coatcheck/internal/secret"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/logtest"
	"github.com/coatcheck/coatcheck/snowflake"
)

type answers func(*http.Request) (status int, body any)

// RoundTrip implements http.RoundTripper.
func (a answers) RoundTrip(r *http.Request) (*http.Response, error) {
	status, body := a(r)
	text, err := json.Marshal(body)
	header := http.Header{"Content-Type": {"application/json"}}
	if status >= 400 {
		header = http.Header{"Content-Type": {"application/problem+json"}, "Retry-After": {"31"}}
	}
	return &http.Response{StatusCode: status, Header: header, Body: io.NopCloser(strings.NewReader(string(text))), Request: r}, err
}

// A program whose ids wait for a pool says so at once, once, and says when they go on.
func TestWaitForAWorkerIDIsLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		service := answers(func(r *http.Request) (int, any) {
			switch asked++; {
			case r.Method == http.MethodDelete:
				return http.StatusNoContent, nil
			case asked < 4:
				return http.StatusConflict, map[string]any{"code": "pool-quarantined", "detail": "the pool is new to this Redis"}
			}
			now := time.Now().UTC()
			return http.StatusCreated, api.WorkerLease{WorkerID: 3, Lease: secret.New(), Fence: 1, TTLMs: 3_600_000, NotBefore: api.At(now), NotAfter: api.At(now.Add(time.Hour)),
				Layout: snowflake.DefaultLayout, Epoch: api.At(snowflake.DefaultEpoch), ServerTime: api.At(now)}
		})
		var log logtest.Text
		c, err := client.New(client.Config{URL: "http://service", Logger: log.Logger(), HTTPClient: &http.Client{Transport: service}})
		expect.Error(t, "New", err, nil)
		waits := make(chan error)
		go func() {
			ids, err := c.StampWorker(t.Context(), "orders", client.WorkerRequest{}, client.HoldOptions{Wait: time.Hour}, snowflake.Config{})
			if err == nil {
				err = ids.Close(t.Context())
			}
			waits <- err
		}()
		synctest.Wait()
		for _, says := range []string{"no worker id yet", "pool=orders", "expected_in=31s", "new to this Redis"} {
			expect.Contains(t, "the log, at once", log.String(), says)
		}
		expect.Error(t, "StampWorker", <-waits, nil)
		expect.Contains(t, "the log after the wait", log.String(), "a worker id is held after a wait", "worker_id=3")
		expect.Equal(t, "lines about three refusals", strings.Count(log.String(), "no worker id yet"), 1)
	})
}
