package config

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/access"
	"github.com/coatcheck/coatcheck/internal/names"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/server"
)

func TestIdentityIsTheHostsNameUnlessOneIsSet(t *testing.T) {
	identity := func(c Service) string {
		c.derive()
		return c.Server.Identity
	}
	expect.Equal(t, "the identity that is set", identity(Service{Server: server.Config{Identity: "orders-0"}}), "orders-0")
	host, err := os.Hostname()
	expect.NoError(t, "the host's name", err)
	expect.Equal(t, "the identity of "+host, identity(Service{}), NameOf(host))
	for host, want := range map[string]string{"db-1.example.com": "db-1.example.com", "Mäx' Mac": "M-x-Mac", "": "", strings.Repeat("h", 300): strings.Repeat("h", 200), "ü": "-"} {
		got := NameOf(host)
		expect.Equal(t, fmt.Sprintf("the name of host %q", host), got, want)
		expect.Equal(t, fmt.Sprintf("whether %q is a name", got), got == "" || names.Valid(got), true)
	}
}

func FuzzConfigFile(f *testing.F) {
	f.Add("listen: 127.0.0.1:1\n")
	f.Add("a: &x [*x]\n")
	f.Add("- 1\n")
	f.Add("? {a: b}\n: c\n")
	f.Fuzz(func(t *testing.T, content string) {
		l := &Sources{File: "f"}
		l.Table = ServiceSettings(&l.Service)
		values, faults := l.parseFile([]byte(content))
		for name := range values {
			if len(faults) == 0 && !strings.Contains(content, name) && !strings.Contains(content, `\`) && !strings.Contains(content, "%") {
				t.Fatalf("%q gave %q", content, name)
			}
		}
	})
}

// The service answers under the name that it is told to listen on, and a service with keys under
// every name unless some are set.
func TestNamesOfTheService(t *testing.T) {
	keys := []access.Record{{ID: "a"}}
	for _, row := range []struct {
		config Service
		want   []string
	}{
		{Service{Listen: "127.0.0.1:8080"}, []string{"127.0.0.1"}},
		{Service{Listen: ":8080"}, nil},
		{Service{Listen: "Coatcheck.internal:8080"}, []string{"coatcheck.internal"}},
		{Service{Listen: "coatcheck.internal:8080", Server: server.Config{AllowedHosts: []string{"a"}}}, []string{"a", "coatcheck.internal"}},
		{Service{Listen: "coatcheck.internal:8080", Access: access.Config{Keys: keys}}, nil},
		{Service{Listen: "coatcheck.internal:8080", Access: access.Config{Keys: keys}, Server: server.Config{AllowedHosts: []string{"a"}}}, []string{"a", "coatcheck.internal"}},
	} {
		expect.Equal(t, fmt.Sprintf("names with listen %s, %d keys and allowed-hosts %q", row.config.Listen, len(row.config.Access.Keys), row.config.Server.AllowedHosts), row.config.Hosts(), row.want)
	}
}
