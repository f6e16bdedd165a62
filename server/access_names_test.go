package server_test

import (
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/access"
	"github.com/coatcheck/coatcheck/internal/storetest"
	"github.com/coatcheck/coatcheck/internal/wire"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/server"
)

// Names beyond those of the path, and what a caller who is limited may touch of them.
func TestNamesThatALimitedCallerMayTouch(t *testing.T) {
	g := serveKeyed(t, server.Config{IDPool: "default"}, map[string]access.Record{
		"exact": {Role: access.Admin, Names: access.Names{"orders", "orders:20260101"}},
		"days":  {Role: access.Use, Names: access.Names{"orders", "orders:*"}},
	})
	for _, row := range []struct {
		caller, method, path, body, field string // "" = let in
	}{
		{"own", "POST", "/incr/orders:1", "", ""},
		{"own", "POST", "/incr/orders", "", "key"},
		{"own", "POST", "/incr/orders%3A1", "", ""},
		{"own", "POST", "/incr/Orders:1", "", "key"},
		{"own", "POST", "/incr/bills:1", "", "key"},
		{"own", "POST", "/incr/orders:a?calendar=%7ByyyyMMdd%7D", "", ""},
		{"days", "POST", "/incr/orders?calendar=%7ByyyyMMdd%7D", "", ""},
		{"days", "POST", "/incr/orders?template=%7ByyyyMMdd%7D-%7Bn%7D", "", ""},
		{"own", "POST", "/incr/orders?calendar=%7ByyyyMMdd%7D", "", "key"},
		{"exact", "POST", "/incr/orders", "", ""},
		{"exact", "POST", "/incr/orders?calendar=%7ByyyyMMdd%7D", "", "key"},
		{"exact", "POST", "/incr/orders?template=%7ByyyyMMdd%7D-%7Bn%7D", "", "key"},
		{"own", "GET", "/id/snowflake/orders:p", "", ""},
		{"own", "GET", "/id/snowflake/other", "", "pool"},
		{"foreign", "GET", "/id/snowflake", "", "pool"},
		{"exact", "GET", "/id/snowflake", "", "pool"},
		{"foreign", "GET", "/id/segment/t", "", "tag"},
		{"foreign", "GET", "/id/uuid", "", ""},
		{"foreign", "GET", "/id/decode/1", "", ""},
		{"foreign", "GET", "/id/decode/1?pool=orders:p", "", "pool"},
		{"foreign", "GET", "/id/decode/123456789012?format=opaque&tag=orders:p", "", "tag"},
		{"own", "POST", "/token", `{"scope":"orders:pay"}`, ""},
		{"own", "POST", "/token", `{"scope":"payments"}`, "scope"},
		{"own", "POST", "/token", "", "scope"},
		{"use", "POST", "/token", "", ""},
		{"own", "POST", "/worker/orders:w", "", ""},
		{"own", "POST", "/lock/orders:l", "", ""},
		{"own", "POST", "/lock/bills:l", "", "name"},
		{"own", "DELETE", "/lock/orders:l?force=1", "", "force"},
		{"foreign admin", "DELETE", "/lock/orders:l?force=1", "", "name"},
	} {
		a := g.as(t, row.caller, row.method, row.path, row.body)
		if row.field != "" {
			if problem := checkProblem(t, a, wire.Forbidden); problem.Field != row.field {
				t.Errorf("%s %s %s: field %q, want %q", row.caller, row.method, row.path, problem.Field, row.field)
			}
			continue
		}
		if a.status == 401 || a.status == 403 || a.status >= 500 {
			t.Errorf("%s %s %s: %d %s", row.caller, row.method, row.path, a.status, a.body)
		}
	}
}

// Whether there is something of a foreign name can not be told from the refusal.
func TestRefusalDoesNotTellWhatThereIs(t *testing.T) {
	g := serveKeyed(t, server.Config{}, nil)
	for _, path := range []string{"/incr/there", "/worker/there", "/lock/there"} {
		if a := g.as(t, "use", "POST", path, ""); a.status >= 300 {
			t.Fatalf("%s: %d %s", path, a.status, a.body)
		}
	}
	for _, path := range []string{"/counter/", "/worker/", "/lock/"} {
		there, not := g.as(t, "foreign", "GET", path+"there", "", "X-Request-Id: same"), g.as(t, "foreign", "GET", path+"elsewhere", "", "X-Request-Id: same")
		if there.status != 403 || not.status != 403 || string(there.body) != string(not.body) {
			t.Errorf("%s\n%s", there.body, not.body)
		}
	}
}

func TestListsShowWhatTheCallerMaySee(t *testing.T) {
	storetest.Each(t, func(t *testing.T, store *redisstore.Store) {
		g := serveKeyed(t, server.Config{Store: store}, map[string]access.Record{
			"two": {Role: access.Read, Names: access.Names{"b:*", "a:*", "exact", "a:2", "z"}}, // z is not there, zz is
		})
		names := []string{"a:1", "a:2", "a:3", "aa", "b:1", "b:2", "c:1", "exact", "exact:1", "zz"}
		for _, name := range names {
			for _, path := range []string{"/incr/", "/worker/", "/lock/"} {
				if a := g.as(t, "use", "POST", path+name, `{}`); a.status >= 300 {
					t.Fatalf("%s%s: %d %s", path, name, a.status, a.body)
				}
			}
		}
		for _, row := range []struct{ caller, prefix, want string }{
			{"read", "", strings.Join(names, " ")},
			{"read", "a", "a:1 a:2 a:3 aa"},
			{"two", "", "a:1 a:2 a:3 b:1 b:2 exact"},
			{"two", "a", "a:1 a:2 a:3"},
			{"two", "a:2", "a:2"},
			{"two", "ex", "exact"},
			{"two", "exact:", ""},
			{"two", "c", ""},
			{"foreign", "", ""},
		} {
			for _, n := range []string{"1", "2", "3", "100"} {
				for path, field := range map[string]string{"/counter": "key", "/worker": "pool", "/lock": "name"} {
					if path == "/lock" {
						eventually(t, "the locks are listed", func() bool { return len(g.names(t, "read", "/lock", "name", "", "100")) == len(names) })
					}
					if got := strings.Join(g.names(t, row.caller, path, field, row.prefix, n), " "); got != row.want {
						t.Errorf("%s by %s from %q, %s a page: %q, want %q", path, row.caller, row.prefix, n, got, row.want)
					}
				}
			}
		}
	})
}

// names reads a whole list, page by page. No page tells a name of others, nor where one would be.
func (g *keyed) names(t *testing.T, caller, path, field, prefix, n string) (names []string) {
	t.Helper()
	for cursor := ""; ; {
		query := url.Values{"n": {n}}
		if prefix != "" {
			query.Set("prefix", prefix)
		}
		if cursor != "" {
			query.Set("cursor", cursor)
		}
		var page map[string]any
		a := g.as(t, caller, "GET", path+"?"+query.Encode(), "")
		if a.status != 200 || strictly(a.body, &page) != nil {
			t.Fatalf("%s: %d %s", path, a.status, a.body)
		}
		for _, list := range page {
			entries, ok := list.([]any)
			if !ok {
				continue
			}
			for _, entry := range entries {
				names = append(names, entry.(map[string]any)[field].(string))
			}
		}
		next, _ := page["next"].(string)
		if next == "" {
			return names
		}
		if cursor = next; !slices.Contains(names, next) {
			t.Fatalf("%s by %s: the cursor %q is no name of the page", path, caller, next)
		}
	}
}
