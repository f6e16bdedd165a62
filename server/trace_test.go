package server_test

import (
	"slices"
	"testing"

	"github.com/coatcheck/coatcheck/access"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/server"
)

// Traces name what each route asks of a domain. A route that asks none is listed here, so that a
// new one is thought of.
func TestTracesNameWhatEveryRouteAsksOfItsDomain(t *testing.T) {
	s := serve(t, server.Config{Store: storetest.Open(t, redisstore.Config{URL: "embedded:"}), Dev: true})
	none := []string{"/cache", "/decodeSnowflakeId", "/console/*", "/events", "/id/uuid", "/id/ulid", "/id/typeid", "/idempotency-policy", "/metrics", "/console/api/history"}
	for _, route := range s.server.Routes() {
		named := server.DomainCall(route) != ""
		if route.Role != access.None && !named && !slices.Contains(none, route.Path) {
			t.Errorf("%s %s asks a domain for nothing that traces have a name for", route.Method, route.Path)
		}
		if route.Role == access.None && named {
			t.Errorf("%s %s is open to all and asks a domain", route.Method, route.Path)
		}
	}
}
