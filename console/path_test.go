package console_test

import (
	"context"
	"net/http"
	"testing"

	"github.com/coatcheck/coatcheck/internal/expect"
	"github.com/coatcheck/coatcheck/server"
)

func TestPageThatIsOffIsNotThere(t *testing.T) {
	s := serve(t, server.Config{Console: server.ConsoleConfig{Mode: server.ConsoleOff}})
	for _, path := range []string{"/console", "/console/", "/console/main.js", "/console/api/session"} {
		s.send(404, "GET", path, "")
	}
}

func TestPathWithoutItsSlashIsRedirected(t *testing.T) {
	s := serve(t, server.Config{})
	request, err := http.NewRequestWithContext(context.Background(), http.MethodGet, s.url+"/console", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{DisableKeepAlives: true}
	response, err := transport.RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	expect.Equal(t, "the status of GET /console", response.StatusCode, http.StatusPermanentRedirect)
	expect.Equal(t, "where it leads", response.Header.Get("Location"), "/console/")
}
