package server_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/server"
)

// An operation that takes no body refuses one that says something: ignored, it would have done more
// than was meant.
func TestOperationsWithoutABodyRefuseOne(t *testing.T) {
	text, err := os.ReadFile("../openapi/openapi.yaml")
	expect.NoError(t, "read the document", err)
	var document struct {
		Paths map[string]struct{ Post, Put, Delete yaml.Node }
	}
	expect.NoError(t, "parse the document", yaml.Unmarshal(text, &document))
	s := serve(t, server.Config{Store: storetest.Open(t, redisstore.Config{})})
	asked := 0
	for path, operations := range document.Paths {
		for method, node := range map[string]yaml.Node{"POST": operations.Post, "PUT": operations.Put, "DELETE": operations.Delete} {
			var operation struct {
				Tags        []string
				RequestBody any `yaml:"requestBody"` //nolint:tagliatelle // OpenAPI writes it so
			}
			expect.NoError(t, "parse the operation", node.Decode(&operation))
			if node.IsZero() || operation.RequestBody != nil || slices.Contains(operation.Tags, "doors") {
				continue
			}
			asked++
			filled := strings.NewReplacer("{worker_id}", "0", "{key}", "x", "{name}", "x", "{pool}", "x").Replace(path)
			wantField(t, s.do(t, method, filled, `{"place":"10.0.0.2:6379"}`, "Lease-Token: x"), api.InvalidRequest, "place")
		}
	}
	if asked < 6 {
		t.Errorf("%d operations without a body, want 6 and more", asked)
	}
}
