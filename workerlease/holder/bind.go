package holder

import (
	"context"
	"log/slog"

	"github.com/coatcheck/coatcheck/internal/holding"
)

// leaser grants the leases of a holder.
type leaser = holding.Leaser[Lease]

var _ = bind()

// bind lets our packages start holders with leases of their own.
func bind() struct{} {
	holding.Hold = func(ctx context.Context, log *slog.Logger, pool string, from, options any) (any, error) {
		return hold(ctx, from.(leaser), options.(Options).logged(log, pool, from.(leaser)))
	}
	holding.Start = func(ctx context.Context, log *slog.Logger, pool string, from, options any) any {
		return start(ctx, from.(leaser), options.(Options).logged(log, pool, from.(leaser)))
	}
	return struct{}{}
}
