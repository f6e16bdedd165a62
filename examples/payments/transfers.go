package main

import (
	"context"
	"database/sql"
	"time"
)

// transferOrder is what a client asks for with POST /transfers.
type transferOrder struct {
	From   string
	To     string
	Amount int64
}

// transfer is money that went from one account to another.
type transfer struct {
	ID      string `json:"id"`
	From    string `json:"from"`
	To      string `json:"to"`
	Amount  int64  `json:"amount"`
	Fence   int64  `json:"fence"` // of the attempt that moved it
	MovedAt string `json:"moved_at"`
}

// transfer moves money, or finds it moved. Both ways are in the one transaction: an attempt that
// comes after a newer one is refused before it writes anything (b, errSuperseded), and one that
// runs again finds the row (a). errFunds: it was refused, and so is every repeat; errOther: the row
// is of another request.
func (l *ledger) transfer(ctx context.Context, operation string, fence int64, order transferOrder) (transfer, error) {
	var made transfer
	var state string
	err := l.transact(ctx, func(ctx context.Context, tx *sql.Tx) error {
		if err := raiseFence(ctx, tx, operation, fence); err != nil {
			return err
		}
		first, err := changed(tx.ExecContext(ctx,
			"INSERT INTO transfers (operation, id, source, target, amount, state, fence, moved_at) VALUES (?, ?, ?, ?, ?, 'done', ?, ?)"+
				" ON CONFLICT (operation) DO NOTHING",
			operation, newID("move_"), order.From, order.To, order.Amount, fence, time.Now().UnixMilli()))
		if err == nil && first {
			err = move(ctx, tx, operation, order)
		}
		if err != nil {
			return err
		}
		made, state, err = readTransfer(ctx, tx, operation)
		return err
	})
	switch {
	case err != nil:
		return transfer{}, err
	case order != transferOrder{made.From, made.To, made.Amount}:
		return transfer{}, errOther
	case state == "refused":
		return transfer{}, errFunds
	}
	return made, nil
}

// move takes the money from one account and gives it to the other, or writes down that there was
// not enough.
func move(ctx context.Context, tx *sql.Tx, operation string, order transferOrder) error {
	taken, err := changed(tx.ExecContext(ctx,
		"UPDATE accounts SET balance = balance - ? WHERE id = ? AND balance >= ?", order.Amount, order.From, order.Amount))
	if err != nil {
		return err
	}
	if !taken {
		_, err = tx.ExecContext(ctx, "UPDATE transfers SET state = 'refused' WHERE operation = ?", operation)
		return err
	}
	_, err = tx.ExecContext(ctx, "UPDATE accounts SET balance = balance + ? WHERE id = ?", order.Amount, order.To)
	return err
}

func readTransfer(ctx context.Context, tx *sql.Tx, operation string) (t transfer, state string, err error) {
	var at int64
	err = tx.QueryRowContext(ctx, "SELECT id, source, target, amount, fence, moved_at, state FROM transfers WHERE operation = ?", operation).
		Scan(&t.ID, &t.From, &t.To, &t.Amount, &t.Fence, &at, &state)
	t.MovedAt = moment(at)
	return t, state, err
}
