package client

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/coatcheck/coatcheck/api"
)

// replicasGoneTakes is how long the service waits before it forgets replicas, and some more.
const replicasGoneTakes = 20 * time.Second

// Restored says that the service's Redis was started from a copy or a backup, and returns how many
// markers and pools are marked: all state counts as possibly lost, once. It is for operators, and
// harmless to repeat until the services are in use again.
func (c *Client) Restored(ctx context.Context) (marked int, err error) {
	asked := call{op: "store restored", name: "-", method: http.MethodPost, path: "/store/restored"}
	done, err := ask(ctx, c.onNamed, asked, func(api.Restored) bool { return true })
	return done.Marked, err
}

// ReplicasGone says that servers which have confirmed writes under --ack all are gone for good, and
// that none of them becomes master: nobody waits for them from then on. places are their addresses,
// host:port; without any, all that are noted and are not attached now are gone. It returns which
// were gone, after 11 seconds. A server that is attached, or that Sentinel or the cluster still
// lists, is refused. Nothing counts as lost. It is for operators, and harmless to repeat.
func (c *Client) ReplicasGone(ctx context.Context, places ...string) (gone []string, err error) {
	patient := *c
	patient.timeout += replicasGoneTakes
	asked := call{op: "store replicas-gone", name: "-", method: http.MethodPost, path: "/store/replicas-gone"}
	if len(places) > 0 {
		asked.path += "?place=" + url.QueryEscape(strings.Join(places, ","))
	}
	done, err := ask(ctx, patient.onNamed, asked, func(answer api.ReplicasGone) bool { return answer.Gone != nil })
	return done.Gone, err
}
