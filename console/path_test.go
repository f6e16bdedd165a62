package console_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"go.uber.org/goleak"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/server"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// get asks a server with that console.
func get(t *testing.T, config server.ConsoleConfig, path string) *httptest.ResponseRecorder {
	t.Helper()
	s := server.New(server.Config{Store: storetest.Open(t, redisstore.Config{URL: "embedded:"}), Console: config})
	defer s.Close(context.Background())
	answer := httptest.NewRecorder()
	s.Handler().ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "http://localhost"+path, http.NoBody))
	return answer
}

func TestPageThatIsOffIsNotThere(t *testing.T) {
	for _, path := range []string{"/console", "/console/", "/console/main.js", "/console/api/session"} {
		expect.Equal(t, "the status of GET "+path, get(t, server.ConsoleConfig{Mode: server.ConsoleOff}, path).Code, http.StatusNotFound)
	}
}

func TestPathWithoutItsSlashIsRedirected(t *testing.T) {
	answer := get(t, server.ConsoleConfig{}, "/console")
	expect.Equal(t, "the status of GET /console", answer.Code, http.StatusPermanentRedirect)
	expect.Equal(t, "where it leads", answer.Header().Get("Location"), "/console/")
}
