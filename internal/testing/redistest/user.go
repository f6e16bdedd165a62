package redistest

import (
	"strings"
	"testing"
)

// User makes an ACL user with the rules for the test, and returns the space's URL with its login.
// The test fails at its end if a server has denied the user anything.
func (s Space) User(t testing.TB, rules []string) (url string) {
	t.Helper()
	return MakeUser(t, s.URL, "user-"+strings.TrimSuffix(s.Prefix, ":"), rules, s.servers...)
}

// MakeUser makes an ACL user with the rules at servers, and returns the URL with its login. The
// test fails at its end if a server that still runs has denied the user anything.
func MakeUser(t testing.TB, url, name string, rules []string, servers ...*Server) string {
	t.Helper()
	const password = "word"
	words := []any{"ACL", "SETUSER", name, "reset", "on", ">" + password}
	for _, rule := range rules {
		words = append(words, rule)
	}
	for _, server := range servers {
		must(t, "ACL SETUSER "+name+" at "+server.Addr(), server.client.Do(t.Context(), words...).Err())
		t.Cleanup(func() { server.checkDenied(t, name) })
	}
	return strings.Replace(url, "://", "://"+name+":"+password+"@", 1)
}

// checkDenied fails the test if the server has denied a user anything. The log has the newest 128
// denials; a server that was stopped has none.
func (s *Server) checkDenied(t testing.TB, user string) {
	t.Helper()
	ctx, cancel := within(s.t, queryLimit)
	defer cancel()
	log, err := s.client.ACLLog(ctx, 128).Result()
	if err != nil {
		return
	}
	for _, denial := range log {
		// A store asks for settings, and does without them.
		if denial.Username == user && denial.Object != "config|get" {
			t.Errorf("%s denied the user %s: %s %q, in %s", s.Addr(), user, denial.Reason, denial.Object, denial.Context)
		}
	}
}
