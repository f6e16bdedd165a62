package browser_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/server"
	"github.com/coatcheck/coatcheck/workerlease"
)

// service is a server on a redis-server of its own, both gone with the test.
type service struct {
	*testing.T

	url   string
	redis *redistest.Server
	store *redisstore.Store
}

func serve(t *testing.T, config server.Config) *service {
	t.Helper()
	s := &service{T: t, redis: redistest.Start(t)}
	s.store = storetest.Open(t, redisstore.Config{URL: s.redis.URL(), Timeout: 20 * time.Second})
	config.Store = s.store
	config.RequestTimeout = time.Hour // who waits for a lock waits as long as the test needs
	if config.Workers.NewPools == "" {
		config.Workers.NewPools = workerlease.NewPoolsTrust
	}
	inner := server.New(config)
	web := httptest.NewServer(inner.Handler())
	s.url = web.URL
	t.Cleanup(func() {
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		if err := inner.Close(ended); err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("closing the service: %v", err)
		}
		web.CloseClientConnections()
		web.Close()
	})
	return s
}

// page is the address of a view.
func (s *service) page(view string) string { return s.url + "/console/#/" + view }

// send makes a request and returns the answer, whose status must be that.
func (s *service) send(status int, method, path, body string, header ...string) map[string]any {
	s.Helper()
	request, err := http.NewRequestWithContext(s.Context(), method, s.url+path, strings.NewReader(body))
	if err != nil {
		s.Fatalf("%s %s, a request: %v", method, path, err)
	}
	for _, one := range header {
		name, value, _ := strings.Cut(one, ": ")
		request.Header.Set(name, value)
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		s.Fatalf("%s %s, its answer: %v", method, path, err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != status {
		s.Fatalf("%s %s: got status %d, the error %v and %s, want status %d", method, path, response.StatusCode, err, text, status)
	}
	answer := map[string]any{}
	if len(text) > 0 {
		if err := json.Unmarshal(text, &answer); err != nil {
			s.Fatalf("%s %s: the answer is no JSON: %v: %s", method, path, err, text)
		}
	}
	return answer
}
