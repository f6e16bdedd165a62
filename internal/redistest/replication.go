package redistest

import (
	"context"
	"fmt"
	"strings"
)

// checkReplication returns nil when master feeds all of replicas and each of them says so.
func checkReplication(ctx context.Context, master *Server, replicas []*Server) error {
	info, err := master.replicationInfo(ctx)
	if err != nil {
		return err
	}
	if online := strings.Count(info, "state=online"); online != len(replicas) {
		return fmt.Errorf("%d of the %d replicas of %s are online", online, len(replicas), master.Addr())
	}
	for _, r := range replicas {
		info, err := r.replicationInfo(ctx)
		if err != nil {
			return err
		}
		if !strings.Contains(info, "master_link_status:up") {
			return fmt.Errorf("replica %s has no link to its master", r.Addr())
		}
	}
	return nil
}

func (s *Server) replicationInfo(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, queryLimit)
	defer cancel()
	info, err := s.client.Info(ctx, "replication").Result()
	if err != nil {
		return "", fmt.Errorf("ask %s about its replication: %w", s.Addr(), err)
	}
	return info, nil
}
