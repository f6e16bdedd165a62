package browser_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/access"
)

// people are those whom a service knows, by their keys: one of each role, and one for the names
// that begin with orders.
type people struct {
	*access.Policy

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
		t.Fatalf("reading the keys: %v", err)
	}
	t.Cleanup(opened.Close)
	p.Policy = opened
	return p
}

func (p people) write(t *testing.T, lines string) {
	t.Helper()
	if err := os.WriteFile(p.file, []byte(lines), 0o600); err != nil {
		t.Fatalf("writing the keys: %v", err)
	}
}

// use is the header with the key of role use.
func (p people) use() string { return "Authorization: Bearer " + p.keys["use"] }

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
