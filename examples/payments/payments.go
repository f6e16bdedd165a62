package main

import (
	"context"
	"database/sql"
	"errors"
	"time"
)

// paymentOrder is what a client asks for with POST /payments.
type paymentOrder struct {
	Amount    int64
	To        string
	Reference string
}

// payment is a charge that was made: the amount came from outside and went to an account.
type payment struct {
	ID        string `json:"id"`
	Amount    int64  `json:"amount"`
	To        string `json:"to"`
	Reference string `json:"reference"`
	ChargedAt string `json:"charged_at"`
}

// charge makes a payment, or finds it made. That the operation's name is the key of its row is all
// that keeps it from being made twice (way (a)): an attempt that runs again inserts nothing, adds
// nothing to the account, and reads the row that is there. errOther: the row is of another request.
func (l *ledger) charge(ctx context.Context, operation string, order paymentOrder) (payment, error) {
	var made payment
	err := l.transact(ctx, func(ctx context.Context, tx *sql.Tx) error {
		first, err := changed(tx.ExecContext(ctx,
			"INSERT INTO payments (operation, id, account, amount, reference, charged_at) VALUES (?, ?, ?, ?, ?, ?)"+
				" ON CONFLICT (operation) DO NOTHING",
			operation, newID("pay_"), order.To, order.Amount, order.Reference, time.Now().UnixMilli()))
		if err != nil {
			return err
		}
		if first {
			if _, err := tx.ExecContext(ctx, "UPDATE accounts SET balance = balance + ? WHERE id = ?", order.Amount, order.To); err != nil {
				return err
			}
		}
		made, err = scanPayment(tx.QueryRowContext(ctx, "SELECT "+paymentColumns+" FROM payments WHERE operation = ?", operation))
		return err
	})
	if err != nil {
		return payment{}, err
	}
	if order != (paymentOrder{made.Amount, made.To, made.Reference}) {
		return payment{}, errOther
	}
	return made, nil
}

// made reports whether an operation has its payment, and which.
func (l *ledger) made(ctx context.Context, operation string) (payment, bool, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	found, err := scanPayment(l.db.QueryRowContext(ctx, "SELECT "+paymentColumns+" FROM payments WHERE operation = ?", operation))
	if errors.Is(err, sql.ErrNoRows) {
		return payment{}, false, nil
	}
	return found, err == nil, err
}

const paymentColumns = "id, amount, account, reference, charged_at"

func scanPayment(row interface{ Scan(into ...any) error }, more ...any) (payment, error) {
	var p payment
	var at int64
	err := row.Scan(append([]any{&p.ID, &p.Amount, &p.To, &p.Reference, &at}, more...)...)
	p.ChargedAt = moment(at)
	return p, err
}

// shown is how many payments the list has at most: the newest.
const shown = 1000

type paymentList struct {
	Total    int       `json:"total"`
	Payments []payment `json:"payments"`
}

// payments reads how many payments there are, and the newest of them, newest first.
func (l *ledger) payments(ctx context.Context) (paymentList, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	list := paymentList{Payments: []payment{}}
	rows, err := l.db.QueryContext(ctx, "SELECT "+paymentColumns+", count(*) OVER () FROM payments ORDER BY rowid DESC LIMIT ?", shown)
	if err != nil {
		return list, err
	}
	defer rows.Close()
	for rows.Next() {
		p, err := scanPayment(rows, &list.Total)
		if err != nil {
			return list, err
		}
		list.Payments = append(list.Payments, p)
	}
	return list, rows.Err()
}
