package main

import "context"

type account struct {
	ID      string `json:"id"`
	Balance int64  `json:"balance"`
}

type accountList struct {
	Sum      int64     `json:"sum"`
	Accounts []account `json:"accounts"`
}

// accounts reads all accounts at one moment. Their sum changes by payments and by nothing else.
func (l *ledger) accounts(ctx context.Context) (accountList, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	list := accountList{Accounts: []account{}}
	rows, err := l.db.QueryContext(ctx, "SELECT id, balance FROM accounts ORDER BY id")
	if err != nil {
		return list, err
	}
	defer rows.Close()
	for rows.Next() {
		var a account
		if err := rows.Scan(&a.ID, &a.Balance); err != nil {
			return list, err
		}
		list.Sum += a.Balance
		list.Accounts = append(list.Accounts, a)
	}
	return list, rows.Err()
}

// has reports whether there is such an account. Accounts are opened with the ledger and never
// closed, so that it can be asked before a transaction begins.
func (l *ledger) has(ctx context.Context, id string) (bool, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	var n int
	err := l.db.QueryRowContext(ctx, "SELECT count(*) FROM accounts WHERE id = ?", id).Scan(&n)
	return n > 0, err
}
