//go:build check

package sqltest_test

import (
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/sqltest"
	"github.com/coatcheck/coatcheck/lock"
)

// Each server takes the statement with the placeholders of its driver: pgx has no other than $1.
func TestServersOfSQLTakeTheStatementThatChecksFences(t *testing.T) {
	placeholders := map[sqltest.Kind]lock.Placeholder{sqltest.MariaDB: lock.PlaceholderQuestion, sqltest.PostgreSQL: lock.PlaceholderDollar}
	sqltest.Each(t, func(t *testing.T, server *sqltest.Server) {
		db, statement := server.Open(t), lock.CheckFenceSQL(placeholders[server.Kind()], "account", "id", "balance")
		for _, text := range []string{
			"CREATE TABLE account (id VARCHAR(20) PRIMARY KEY, balance BIGINT, fence BIGINT NOT NULL DEFAULT 0)",
			"INSERT INTO account (id, balance) VALUES ('ann', 100)",
		} {
			_, err := db.ExecContext(t.Context(), text)
			expect.MustEqual(t, "error of "+text, err, nil)
		}
		for _, write := range []struct{ balance, fence, rows int64 }{{70, 2, 1}, {130, 1, 0}, {60, 2, 1}} {
			result, err := db.ExecContext(t.Context(), statement, write.balance, write.fence, "ann", write.fence)
			expect.MustEqual(t, "error of "+statement, err, nil)
			rows, err := result.RowsAffected()
			expect.Error(t, "the count of rows", err, nil)
			expect.Equal(t, "rows that a holder writes", rows, write.rows)
		}
	})
}
