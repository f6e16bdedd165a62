package client

import (
	"context"
	"net/http"

	"github.com/coatcheck/coatcheck/internal/wire"
)

// Restored says that the service's Redis was started from a copy or a backup, and returns how many
// markers and pools are marked: all state counts as possibly lost, once. It is for operators, and
// harmless to repeat until the services are in use again.
func (c *Client) Restored(ctx context.Context) (marked int, err error) {
	done, err := ask(ctx, c.onNamed,
		call{op: "store restored", name: "-", method: http.MethodPost, path: "/store/restored",
			status: http.StatusOK}, func(wire.Restored) bool { return true })
	return done.Marked, err
}
