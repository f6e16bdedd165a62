package redisconn

import (
	"errors"
	"testing"
)

// answered is an error that Redis answered.
type answered string

func (a answered) Error() string { return string(a) }
func (answered) RedisError()     {}

func TestRedirectsAreRead(t *testing.T) {
	for text, want := range map[string]struct{ target, kind string }{
		"MOVED 3999 127.0.0.1:6381":          {"127.0.0.1:6381", "MOVED"},
		"ASK 3999 redis-1.example:6381":      {"redis-1.example:6381", "ASK"},
		"MOVED 3999 ::1:6381":                {"[::1]:6381", "MOVED"},
		"MOVED 3999 [fe80::1%eth0]:6381":     {"[fe80::1%eth0]:6381", "MOVED"},
		"MOVED 3999 nowhere":                 {"nowhere", "MOVED"},
		"TRYAGAIN Multiple keys request":     {"", "TRYAGAIN"},
		"NOSCRIPT No matching script.":       {"", "NOSCRIPT"},
		"MOVED":                              {"", ""},
		"MOVED 3999 127.0.0.1:6381 and more": {"", ""},
		"ERR MOVED 3999 127.0.0.1:6381":      {"", ""},
		"ERR something about NOSCRIPT":       {"", ""},
		"CLUSTERDOWN The cluster is down":    {"", ""},
		"":                                   {"", ""},
	} {
		if target, kind := Redirect(answered(text)); target != want.target || kind != want.kind {
			t.Errorf("%q: got %q %q, want %+v", text, target, kind, want)
		}
	}
	if _, kind := Redirect(errors.New("MOVED 3999 127.0.0.1:6381")); kind != "" {
		t.Errorf("an error that Redis did not answer is a %s", kind)
	}
}
