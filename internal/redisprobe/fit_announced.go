package redisprobe

import (
	"context"
	"net"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// unfitAnnounced finds a node of a cluster that answers at the URL's address, and announces another
// for itself that cannot be reached from here: clients go by what nodes announce.
func (i *inspector) unfitAnnounced(ctx context.Context, addr string) error {
	node := i.dial(addr)
	defer node.Close()
	text, err := node.ClusterNodes(ctx).Result()
	if err != nil {
		return nil // what is missing is said of it elsewhere
	}
	ranges, err := node.ClusterSlots(ctx).Result()
	if err != nil {
		return nil
	}
	announced := announcedBy(text, ranges)
	host, _, _ := net.SplitHostPort(announced)
	asked, _, _ := net.SplitHostPort(addr)
	// go-redis puts the URL's host in the place of a loopback address
	if host == "" || announced == addr || loopback(host) && !loopback(asked) {
		return nil
	}
	conn, err := (&net.Dialer{Timeout: min(time.Second, i.config.Timeout)}).DialContext(context.WithoutCancel(ctx), "tcp", announced)
	if err == nil {
		_ = conn.Close()
		return nil
	}
	return &UnfitError{i.urlOf(addr),
		"is a node of a cluster that announces itself as " + announced + ", which cannot be reached from here (" + err.Error() + ")",
		"cluster-announce-ip, cluster-announce-port or cluster-announce-hostname of each node, such that clients reach it there"}
}

// announcedBy is the address that a node has clients find it by, "" if it serves no slot.
func announcedBy(nodes string, ranges []redis.ClusterSlot) string {
	for line := range strings.Lines(nodes) {
		words := strings.Fields(line)
		if len(words) < 3 || !strings.Contains(words[2], "myself") {
			continue
		}
		for _, slots := range ranges {
			for _, one := range slots.Nodes {
				if one.ID == words[0] {
					return one.Addr
				}
			}
		}
	}
	return ""
}
