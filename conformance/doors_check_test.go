//go:build check

package main

import (
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
)

// outlasting is a pace at which a slow payment outlasts its lease, so that only heartbeats keep it.
var outlasting = pace{slow: 3 * time.Second, lease: 2 * time.Second}

// The doors of one store are tried one after the other: some share its ledger.
func TestCoatcheckConformsOnEveryStoreWithPaymentsThatOutlastTheirLease(t *testing.T) {
	storetest.Each(t, func(t *testing.T, store *redisstore.Store) {
		t.Parallel()
		for _, row := range doors {
			t.Run(row.name, func(t *testing.T) { row.open(t, store, outlasting).wantAllPassed(t) })
		}
	})
}
