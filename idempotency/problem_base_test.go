package idempotency

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
)

// An application without the service's pages says where its own are.
func TestTypeOfAProblemBeginsWithTheBase(t *testing.T) {
	store := storetest.Open(t, redisstore.Config{URL: "embedded:"})
	for base, want := range map[string]string{
		"":                               "/problems/idempotency-key-missing",
		"https://shop.example/problems/": "https://shop.example/problems/idempotency-key-missing",
	} {
		tokens := New(store, Config{ProblemBase: base})
		answer := post(tokens.Middleware(Route{Name: "r"})(http.NotFoundHandler()), "pay")
		var problem struct {
			Type string `json:"type"`
		}
		expect.Error(t, "reading the problem", json.Unmarshal(answer.Body.Bytes(), &problem), nil)
		expect.Equal(t, "type", problem.Type, want)
		expect.Error(t, "Close", tokens.Close(t.Context()), nil)
	}
}

func TestBaseThatIsNoURIReferencePanics(t *testing.T) {
	store := storetest.Open(t, redisstore.Config{URL: "embedded:"})
	defer func() {
		if recover() == nil {
			t.Error("New took a base that is no URI reference")
		}
	}()
	New(store, Config{ProblemBase: "http://[::1"})
}
