// Command payments is a small payments service that shows how an effect in a database becomes safe
// to ask for twice, also in the cases that no guard in front of it can cover: a process that dies
// between the charge and its answer, one that is paused for longer than its lease, and a Redis that
// lost what it had confirmed.
//
// The idempotency middleware sees to it that a double click and a retry are one run and one answer.
// The ledger, in SQLite, does the rest:
//
//   - Way (a), the unique column: the row of a charge carries the name of its operation,
//     [idempotency.Attempt.Operation], in a unique column, and is inserted in the transaction of
//     the charge, with ON CONFLICT DO NOTHING. An attempt that runs again finds the row and answers
//     what it says.
//   - Way (b), the fence: before anything else the transaction raises the fence of its operation to
//     its own, [idempotency.Attempt.Fence], with UPDATE … WHERE fence < ?. Where that changes no
//     row a newer attempt has been here, and this one is refused.
//
// POST /payments is guarded under hold and uses (a); POST /transfers is guarded under takeover and
// uses both. What each way is good for, and what not, stands in docs/effects.md.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}
