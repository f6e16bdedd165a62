package client

import (
	"context"
	"net/http"
	"net/url"
	"strings"

	"github.com/coatcheck/coatcheck/api"
)

// Restored says that the service's Redis was started from a copy or a backup, and returns how many
// markers and pools are marked: all state counts as possibly lost, once. It is for operators, and
// harmless to repeat until the services are in use again.
func (c *Client) Restored(ctx context.Context) (marked int, err error) {
	return c.say(ctx, "restored")
}

// ReplicasGone says that servers which have confirmed writes under --ack all are gone for good, and
// that none of them becomes master: nobody waits for them from then on. places are their addresses,
// host:port; without any, all of them that are not attached now are gone. It returns how many
// markers and pools it has changed, and nothing counts as lost. It is for operators, and harmless
// to repeat.
func (c *Client) ReplicasGone(ctx context.Context, places ...string) (marked int, err error) {
	if len(places) == 0 {
		return c.say(ctx, "replicas-gone")
	}
	return c.say(ctx, "replicas-gone?place="+url.QueryEscape(strings.Join(places, ",")))
}

func (c *Client) say(ctx context.Context, what string) (marked int, err error) {
	asked := call{op: "store " + what, name: "-", method: http.MethodPost, path: "/store/" + what}
	done, err := ask(ctx, c.onNamed, asked, func(api.Restored) bool { return true })
	return done.Marked, err
}
