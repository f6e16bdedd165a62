package frontdoor_test

import (
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/internal/frontdoor"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

func TestNamesUnderWhichAServerAnswers(t *testing.T) {
	named := frontdoor.Hosts{"coatcheck.internal", "*.example.com"}
	for host, want := range map[string]struct{ unnamed, named bool }{
		"":                      {true, true}, // HTTP/1.0
		":8080":                 {true, true},
		"localhost":             {true, true},
		"LocalHost:8080":        {true, true},
		"localhost.":            {true, true},
		"app.localhost:80":      {true, true},
		"127.0.0.1":             {true, true},
		"127.0.0.1:8080":        {true, true},
		"127.8.9.1:1":           {true, true},
		"10.1.2.3:8080":         {true, true}, // a probe of Kubernetes
		"[::1]":                 {true, true},
		"[::1]:8080":            {true, true},
		"[fe80::1%25eth0]:8080": {true, true},
		// this machine, for a browser that does not say so
		"0.0.0.0:8080":            {false, false},
		"[::]:8080":               {false, false},
		"[::ffff:127.0.0.1]:8080": {false, false},
		"[::ffff:7f00:1]":         {false, false},
		"coatcheck.internal":      {false, true},
		"Coatcheck.Internal.:443": {false, true},
		"a.example.com":           {false, true},
		"a.b.example.com:80":      {false, true},
		"example.com":             {false, false},
		"notexample.com":          {false, false},
		"evil.test":               {false, false},
		"evil.test:8080":          {false, false},
		"localhost.evil.test":     {false, false},
		"evillocalhost":           {false, false},
		"127.0.0.1.evil.test":     {false, false},
		"127.1":                   {false, false},
		"2130706433":              {false, false},
		"0x7f.1":                  {false, false},
		"[::1].evil.test":         {false, false},
		"coatcheck.internal.evil": {false, false},
		"*.example.com.evil":      {false, false},
		"a b":                     {false, false},
	} {
		expect.Equal(t, "Host "+host+" without names", frontdoor.Hosts(nil).Allow(host), want.unnamed)
		expect.Equal(t, "Host "+host+" with names", named.Allow(host), want.named)
		expect.Equal(t, "Host "+host+" with * for names", frontdoor.Hosts{"*"}.Allow(host), true)
	}
}

func TestEntriesOfHosts(t *testing.T) {
	for entry, good := range map[string]bool{
		"coatcheck": true, "a.b-c.d_e": true, "*": true, "*.example.com": true, "10.1.2.3": true,
		"": false, "A.example": false, "a.example:80": false, "http://a": false, "*a": false, "a.*": false, "**": false, "a..b": false, ".a": false, "a.": false, "a b": false,
		strings.Repeat("a", 254): false,
	} {
		if err := frontdoor.CheckHost(entry); (err == nil) != good {
			t.Errorf("CheckHost(%q): got %v, want an error: %t", entry, err, !good)
		}
	}
}
