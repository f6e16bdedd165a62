// Package ledger is the demo's book of charges, kept in Redis so that every server process writes
// into the same one. On purpose it has no idempotency: a charge that is made twice is in it twice.
package ledger

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/onstore"
	"github.com/coatcheck/coatcheck/internal/secret"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/scripts"
)

// shown is how many charges List gives at most: the newest.
const shown = 1000

// Ledger is the book of one store. It is safe for concurrent use.
type Ledger struct{ store *redisstore.Store }

// New returns the ledger of a store.
func New(store *redisstore.Store) *Ledger { return &Ledger{store} }

// Charge writes a payment into the book, with a new id and the store's time.
func (l *Ledger) Charge(ctx context.Context, payment api.Payment) (api.Payment, error) {
	payment.ID = "pay_" + secret.New()
	entry, err := json.Marshal(payment)
	if err != nil {
		return api.Payment{}, err
	}
	reply, err := onstore.Run(ctx, l.store, scripts.LedgerAppend, l.keys(), entry)
	if err != nil {
		return api.Payment{}, err
	}
	err = reply.Scan(&payment.ChargedAt.Time)
	return payment, err
}

// List reads how many charges there are, and the newest of them, oldest first.
func (l *Ledger) List(ctx context.Context) (api.Ledger, error) {
	reply, err := onstore.Run(ctx, l.store, scripts.LedgerList, l.keys(), shown)
	if err != nil {
		return api.Ledger{}, err
	}
	ledger := api.Ledger{Payments: []api.Payment{}}
	if err := reply.Scan(&ledger.Total); err != nil {
		return api.Ledger{}, err
	}
	entries := reply.Values()[1:]
	for i := 0; i+1 < len(entries); i += 2 {
		payment, err := read(entries[i], entries[i+1])
		if err != nil {
			return api.Ledger{}, fmt.Errorf("%w: an entry of the ledger cannot be read: %w", redisstore.ErrUnavailable, err)
		}
		ledger.Payments = append(ledger.Payments, payment)
	}
	return ledger, nil
}

func read(entry, chargedAt string) (payment api.Payment, err error) {
	if err := json.Unmarshal([]byte(entry), &payment); err != nil {
		return payment, err
	}
	micros, err := strconv.ParseFloat(chargedAt, 64) // Redis writes a large score as 1.7e+15
	payment.ChargedAt = api.At(time.UnixMilli(int64(micros) / 1000).UTC())
	return payment, err
}

func (l *Ledger) keys() []string { return []string{onstore.Key(l.store, "demo", "payments")} }
