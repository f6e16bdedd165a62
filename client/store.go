package client

import (
	"context"
	"net/http"

	"github.com/coatcheck/coatcheck/api"
)

// Restored says that the service's Redis was started from a copy or a backup, and returns how many
// markers and pools are marked: all state counts as possibly lost, once. It is for operators, and
// harmless to repeat until the services are in use again.
func (c *Client) Restored(ctx context.Context) (marked int, err error) {
	return c.say(ctx, "restored")
}

// ReplicasGone says that replicas which have confirmed writes under --ack all at a plain URL are
// gone for good, and that none of them becomes master: the service, and processes that start after
// it, wait for those that are attached. It returns how many markers and pools it has changed, and
// nothing counts as lost. It is for operators, and harmless to repeat.
func (c *Client) ReplicasGone(ctx context.Context) (marked int, err error) {
	return c.say(ctx, "replicas-gone")
}

func (c *Client) say(ctx context.Context, what string) (marked int, err error) {
	asked := call{op: "store " + what, name: "-", method: http.MethodPost, path: "/store/" + what}
	done, err := ask(ctx, c.onNamed, asked, func(api.Restored) bool { return true })
	return done.Marked, err
}
