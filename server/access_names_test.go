package server_test

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/access"
	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/server"
)

// Names beyond those of the path, and what a caller who is limited may touch of them.
func TestNamesThatALimitedCallerMayTouch(t *testing.T) {
	t.Parallel()
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
		{"own", "POST", "/operation/claim", `{"key":"k","fingerprint":"f","scope":"orders:pay"}`, ""},
		{"own", "POST", "/operation/claim", `{"key":"k","fingerprint":"f","scope":"payments"}`, "scope"},
		{"own", "POST", "/operation/claim", `{"key":"k","fingerprint":"f"}`, "scope"},
		{"foreign admin", "DELETE", "/operation/9JQhVxOHV2DjJyQmnh4ZDYwW2VNVqg0C", "", "operation"},
		{"own", "POST", "/worker/orders:w", "", ""},
		{"own", "POST", "/lock/orders:l", "", ""},
		{"own", "POST", "/lock/bills:l", "", "name"},
		{"own", "POST", "/limit/orders:l", `{"rate":1,"per_ms":1000}`, ""},
		{"own", "POST", "/limit/bills:l", `{"rate":1,"per_ms":1000}`, "name"},
		{"foreign admin", "DELETE", "/limit/orders:l", "", "name"},
		{"own", "DELETE", "/lock/orders:l?force=1", "", "force"},
		{"foreign admin", "DELETE", "/lock/orders:l?force=1", "", "name"},
	} {
		a := g.as(t, row.caller, row.method, row.path, row.body)
		if row.field != "" {
			wantField(t, a, api.Forbidden, row.field)
			continue
		}
		if a.status == 401 || a.status == 403 || a.status >= 500 {
			t.Errorf("by %s: %v; want it to be let in", row.caller, a)
		}
	}
}

// Whether there is something of a foreign name cannot be told from the refusal.
func TestRefusalDoesNotTellWhatThereIs(t *testing.T) {
	g := serveKeyed(t, server.Config{}, nil)
	for _, path := range []string{"/incr/there", "/worker/there", "/lock/there"} {
		if a := g.as(t, "use", "POST", path, ""); a.status >= 300 {
			t.Fatalf("%v; want status 200 or 201", a)
		}
	}
	for _, path := range []string{"/counter/", "/worker/", "/lock/"} {
		there, not := g.as(t, "foreign", "GET", path+"there", "", "X-Request-Id: same"), g.as(t, "foreign", "GET", path+"elsewhere", "", "X-Request-Id: same")
		there.wantStatus(t, 403)
		not.wantStatus(t, 403)
		expect.Equal(t, "the refusals of "+path+"there, which exists, and "+path+"elsewhere, which does not", string(there.body), string(not.body))
	}
}

func TestListsShowWhatTheCallerMaySee(t *testing.T) {
	t.Parallel()
	storetest.Each(t, func(t *testing.T, store *redisstore.Store) {
		g := serveKeyed(t, server.Config{Store: store}, map[string]access.Record{
			// z is not there, zz is
			"two": {Role: access.Read, Names: access.Names{"b:*", "a:*", "exact", "a:2", "z"}},
		})
		names := []string{"a:1", "a:2", "a:3", "aa", "b:1", "b:2", "c:1", "exact", "exact:1", "zz"}
		for _, name := range names {
			for path, body := range map[string]string{"/incr/": "", "/worker/": `{"ttl_ms":3600000}`, "/lock/": `{"ttl_ms":3600000}`} {
				if a := g.as(t, "use", "POST", path+name, body); a.status >= 300 {
					t.Fatalf("%v; want status 200 or 201", a)
				}
			}
		}
		expect.Eventually(t, "the locks are listed", func() bool { return len(g.names(t, "read", "/lock", "name", "", "100")) == len(names) })
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
					asked := fmt.Sprintf("GET %s?prefix=%s&n=%s by %s, all pages", path, row.prefix, n, row.caller)
					expect.Equal(t, asked, strings.Join(g.names(t, row.caller, path, field, row.prefix, n), " "), row.want)
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
			t.Fatalf("by %s: %v; want a page", caller, a)
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
			t.Fatalf("by %s: %v; want a name of the page for the cursor, got %q", caller, a, next)
		}
	}
}
