package redisprobe

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/coatcheck/coatcheck/internal/onstore"
	"github.com/coatcheck/coatcheck/redisstore"
)

// Refused are the commands that a store can do without and that a master's ACL refuses to its user,
// as a line for each master: what is missed by it, and the rule to grant. The error is that of
// [onstore.EachMaster].
func Refused(ctx context.Context, store *redisstore.Store) ([]string, error) {
	all, err := ofMasters(ctx, store, "rights", func(ctx context.Context, node *redis.Client) ([]string, error) {
		spared := []needed{{"INFO", "replication"}, {"PUBLISH", "C", "x"}, {"SUBSCRIBE", "C"}}
		tried, err := try(ctx, node, spared, "", store.Prefix()+"doctor:none")
		denied := tried.denied
		if onstore.Restarts(store) == redisstore.RestartsTrust {
			denied = slices.DeleteFunc(denied, func(name string) bool { return name == "INFO" })
		}
		if err != nil || len(denied) == 0 {
			return nil, err
		}
		return []string{refused(node, store, denied)}, nil
	})
	slices.Sort(all)
	return all, err
}

func refused(node *redis.Client, store *redisstore.Store, denied []string) string {
	var missed []string
	if slices.Contains(denied, "INFO") {
		missed = append(missed, "counters, segments and worker ids are refused")
	}
	if slices.Contains(denied, "PUBLISH") || slices.Contains(denied, "SUBSCRIBE") {
		missed = append(missed, "those that wait for a lock or an answer poll, and hear of it later")
	}
	return fmt.Sprintf("%s does not let the user run %s: %s (ACL SETUSER %s &%s*%s)", node.Options().Addr, strings.Join(denied, ", "),
		strings.Join(missed, "; "), cmp.Or(node.Options().Username, "default"), store.Prefix(), rights(denied))
}
