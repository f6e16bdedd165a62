package redistest

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
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

// checkConfirmation returns nil when that many replicas confirm a write, which leaves nothing
// behind. One that a master calls online may not have been sent any write yet: the master waits for
// its first word, up to a second.
func checkConfirmation(ctx context.Context, master *Server, replicas int) error {
	var confirmed *redis.Cmd
	_, err := master.client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		pipe.Set(ctx, "redistest", "x", 0)
		pipe.Del(ctx, "redistest")
		confirmed = pipe.Do(ctx, "wait", replicas, (200 * time.Millisecond).Milliseconds())
		return nil
	})
	if err != nil {
		return fmt.Errorf("write to %s: %w", master.Addr(), err)
	}
	if n, _ := confirmed.Int(); n < replicas {
		return fmt.Errorf("%d of the %d replicas of %s confirm a write", n, replicas, master.Addr())
	}
	return nil
}

// Backup has the server begin to send a copy of its data, as redis-cli --rdb asks for it.
func (s *Server) Backup() {
	s.t.Helper()
	conn, err := net.Dial("tcp", s.Addr())
	if err == nil {
		defer conn.Close()
		if _, err = io.WriteString(conn, "SYNC\r\n"); err == nil {
			_, err = io.ReadFull(conn, make([]byte, 100))
		}
	}
	if err != nil {
		s.t.Fatalf("a backup of %s: %v", s.Addr(), err)
	}
}

func (s *Server) replicationInfo(ctx context.Context) (string, error) {
	info, err := s.client.Info(ctx, "replication").Result()
	if err != nil {
		return "", fmt.Errorf("ask %s about its replication: %w", s.Addr(), err)
	}
	return info, nil
}
