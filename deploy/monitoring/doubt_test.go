package monitoring_test

import (
	"fmt"
	"maps"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/idempotency"
	"github.com/coatcheck/coatcheck/metrics"
	"github.com/coatcheck/coatcheck/redisstore"
)

// Three attempts fall silent, and their customers leave: nobody asks again, and somebody is paged.
func TestOperationsInDoubtAlertThoughNobodyAsksAgain(t *testing.T) {
	for _, n := range []int{0, 3} {
		t.Run(fmt.Sprint(n, " in doubt"), func(t *testing.T) {
			store, err := redisstore.Open(t.Context(), "embedded:")
			if err != nil {
				t.Fatalf("opening a store: %v", err)
			}
			t.Cleanup(func() { _ = store.Close() })
			fallSilent(t, idempotency.New(store, idempotency.Config{}), n)
			is := openOn(t, store)
			registries := map[string]*metrics.Registry{"coatcheck": is.service, "coatcheck-gateway": is.gateway, "orders": is.library}
			for name, registry := range registries {
				all := samples(t, registry, map[string]string{"job": name, "instance": name + ":1"})
				_, got := firing(t, all...)["CoatcheckTokensInDoubt"]
				if got != (n > 0) {
					t.Errorf("%s: CoatcheckTokensInDoubt fires: %v, with %d operations in doubt", name, got, n)
				}
			}
		})
	}
}

// fallSilent begins operations of a gateway's route whose attempts end without an answer.
func fallSilent(t *testing.T, tokens *idempotency.Tokens, n int) {
	t.Helper()
	for i := range n {
		options := idempotency.ClaimOptions{Fingerprint: "f", Route: "POST /payments", Lease: idempotency.MinLease}
		if _, err := tokens.Claim(t.Context(), idempotency.Key{Scope: "POST /payments", ID: fmt.Sprint(i)}, options); err != nil {
			t.Fatalf("claim %d: %v", i, err)
		}
	}
	for {
		list, _, err := tokens.List(t.Context(), "", "", 100)
		if err != nil {
			t.Fatalf("listing what is in doubt: %v", err)
		}
		if len(list) == n {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// samples are what a scrape of a program brings, as it has been for an hour.
func samples(t *testing.T, registry *metrics.Registry, target map[string]string) []series {
	t.Helper()
	all := []series{{metric: "up", of: target, start: 1}}
	for _, line := range sampleLine.FindAllStringSubmatch(scrape(registry), -1) {
		of := maps.Clone(target)
		for _, label := range pair.FindAllStringSubmatch(line[2], -1) {
			of[label[1]] = label[2]
		}
		value, err := strconv.ParseFloat(line[0][strings.LastIndexByte(line[0], ' ')+1:], 64)
		if err != nil {
			t.Fatalf("the value in %q: %v", line[0], err)
		}
		all = append(all, series{metric: line[1], of: of, start: value})
	}
	return all
}
