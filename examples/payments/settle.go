package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/coatcheck/coatcheck/idempotency"
)

// settle ends the doubt about payments, as a job does that runs beside the service (--settle): the
// row of a charge carries the name of its operation, so the ledger knows whether it was made. It
// returns how many operations it settled.
//
// It may say "not begun" although the attempt in doubt can still wake up and charge: then the next
// attempt finds the row. Without a unique column in the transaction of the effect a job must leave
// such operations to a person, who can wait until the attempt is gone for good.
func (s *service) settle(ctx context.Context) (settled int, err error) {
	const atOnce = 100
	for after, more := "", true; more; more = after != "" {
		list, next, err := s.tokens.List(ctx, "payments", after, atOnce)
		if err != nil {
			return settled, err
		}
		for _, operation := range list {
			done, err := s.settleOne(ctx, operation.Name)
			if err != nil {
				return settled, err
			}
			settled += done
		}
		after = next
	}
	return settled, nil
}

// settleOne settles one operation; 0 if its doubt has ended meanwhile.
func (s *service) settleOne(ctx context.Context, operation string) (settled int, err error) {
	settlement, err := s.found(ctx, operation)
	if err != nil {
		return 0, fmt.Errorf("operation %s: %w", operation, err)
	}
	err = s.tokens.Settle(ctx, operation, settlement)
	switch {
	case errors.Is(err, idempotency.ErrAttemptRunning), errors.Is(err, idempotency.ErrNotInDoubt), errors.Is(err, idempotency.ErrUnknownToken):
		return 0, nil
	case err != nil:
		return 0, err
	}
	s.log.InfoContext(ctx, "settled by the ledger", "operation", operation, "decision", string(settlement.Decision))
	return 1, nil
}

// found says what the ledger knows of an operation: the answer that its attempt would have given,
// or that nothing was charged.
func (s *service) found(ctx context.Context, operation string) (idempotency.Settlement, error) {
	made, there, err := s.ledger.made(ctx, operation)
	if err != nil || !there {
		return idempotency.Settlement{Decision: idempotency.DecisionNotBegun}, err
	}
	var body bytes.Buffer
	if err := json.NewEncoder(&body).Encode(made); err != nil {
		return idempotency.Settlement{}, err
	}
	header := http.Header{"Content-Type": {"application/json"}, "Cache-Control": {"no-store"}}
	return idempotency.Settlement{
		Decision: idempotency.DecisionHappened,
		Answer:   idempotency.Answer{Status: http.StatusCreated, Header: header, Body: body.Bytes()},
	}, nil
}
