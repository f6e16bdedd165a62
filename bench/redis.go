package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// redisServer is a private redis-server that keeps nothing on disk.
type redisServer struct {
	*redis.Client // for looking at it

	child *child
	addr  string
	dir   string // where a replica puts what its master sends
}

// startRedis starts a redis-server on a free port and returns when it answers.
func startRedis(ctx context.Context) (*redisServer, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "coatcheck-bench-")
	if err != nil {
		return nil, err
	}
	child, err := start(ctx, cmp.Or(os.Getenv("REDIS_SERVER"), "redis-server"),
		"--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--loglevel", "warning", "--dir", dir)
	if err != nil {
		_ = os.RemoveAll(dir)
		return nil, fmt.Errorf("%w; install one with `apt-get install -y redis-server`, or name its binary in REDIS_SERVER", err)
	}
	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	server := &redisServer{child: child, addr: addr, dir: dir,
		Client: redis.NewClient(&redis.Options{Addr: addr, ReadTimeout: time.Minute})}
	for {
		if server.Ping(ctx).Err() == nil {
			return server, nil
		}
		select {
		case <-child.done:
			return nil, errors.Join(errors.New("redis-server ended before it answered"), server.Close(), os.RemoveAll(dir))
		case <-ctx.Done():
			server.end()
			return nil, ctx.Err()
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// freePort finds a free port. Another process may be quicker to take it; then redis-server
// ends and says so.
func freePort() (int, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	port := listener.Addr().(*net.TCPAddr).Port
	return port, listener.Close()
}

func (s *redisServer) url() string { return "redis://" + s.addr }

func (s *redisServer) end() {
	_ = s.Close()
	s.child.end()
	_ = os.RemoveAll(s.dir)
}

// info returns a section of INFO by its fields.
func (s *redisServer) info(ctx context.Context, section string) (map[string]string, error) {
	text, err := s.Info(ctx, section).Result()
	if err != nil {
		return nil, err
	}
	fields := map[string]string{}
	for line := range strings.SplitSeq(text, "\r\n") {
		if name, value, found := strings.Cut(line, ":"); found {
			fields[name] = value
		}
	}
	return fields, nil
}

// number returns one number of INFO.
func (s *redisServer) number(ctx context.Context, section, field string) (float64, error) {
	fields, err := s.info(ctx, section)
	if err != nil {
		return 0, err
	}
	return strconv.ParseFloat(fields[field], 64)
}

// cpu is how much processor time the server has used, in microseconds.
func (s *redisServer) cpu(ctx context.Context) (float64, error) {
	fields, err := s.info(ctx, "cpu")
	if err != nil {
		return 0, err
	}
	var sum float64
	for _, field := range []string{"used_cpu_sys", "used_cpu_user"} {
		seconds, err := strconv.ParseFloat(fields[field], 64)
		if err != nil {
			return 0, fmt.Errorf("INFO cpu: %w", err)
		}
		sum += seconds * 1e6
	}
	return sum, nil
}
