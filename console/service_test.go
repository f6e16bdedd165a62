package console_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/access"
	"github.com/coatcheck/coatcheck/internal/redistest"
	"github.com/coatcheck/coatcheck/internal/storetest"
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
		config.Workers.NewPools = workerlease.Trust
	}
	inner := server.New(config)
	web := httptest.NewServer(inner.Handler())
	s.url = web.URL
	t.Cleanup(func() {
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		if err := inner.Close(ended); err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
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
		s.Fatal(err)
	}
	for _, one := range header {
		name, value, _ := strings.Cut(one, ": ")
		request.Header.Set(name, value)
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		s.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != status {
		s.Fatalf("%s %s: %d %v %s", method, path, response.StatusCode, err, text)
	}
	answer := map[string]any{}
	if len(text) > 0 {
		if err := json.Unmarshal(text, &answer); err != nil {
			s.Fatalf("%v: %s", err, text)
		}
	}
	return answer
}

// people are those whom a service knows, by their keys: one of each role, and one for the names that begin with orders.
type people struct {
	*access.Book

	keys map[string]string
	file string
}

func book(t *testing.T) people {
	t.Helper()
	p := people{keys: map[string]string{}, file: filepath.Join(t.TempDir(), "access.yaml")}
	lines := "keys:\n"
	for _, one := range []struct{ name, role, names string }{
		{"read", "read", ""}, {"use", "use", ""}, {"admin", "admin", ""}, {"orders", "use", "    prefixes: ['orders*']\n"},
	} {
		key := access.NewKey()
		p.keys[one.name] = key.Text()
		lines += "  - id: " + key.ID + "\n    sha256: " + key.Hash().String() + "\n    principal: " + one.name + "-person\n    role: " + one.role + "\n" + one.names
	}
	p.write(t, lines)
	opened, err := access.Open(t.Context(), access.Config{File: p.file})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(opened.Close)
	p.Book = opened
	return p
}

func (p people) write(t *testing.T, lines string) {
	t.Helper()
	if err := os.WriteFile(p.file, []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
}

// of is the header with somebody's key.
func (p people) of(name string) string { return "Authorization: Bearer " + p.keys[name] }

// newRequest makes a request that is sent when it is called, whatever the answer is.
func newRequest(s *service, method, path, body string) (func() error, error) {
	request, err := http.NewRequestWithContext(s.Context(), method, s.url+path, strings.NewReader(body))
	return func() error {
		client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		response, err := client.Do(request)
		if err == nil {
			response.Body.Close()
		}
		return err
	}, err
}
