package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/coatcheck/coatcheck/counter"
	"github.com/coatcheck/coatcheck/redisstore"
)

// serveIncrCommand is a service that counts. It prints what serveCommand prints.
func serveIncrCommand(ctx context.Context, args []string, stdin io.Reader, stdout io.Writer) (err error) {
	flags := flag.NewFlagSet("serve-incr", flag.ContinueOnError)
	side := flags.String("side", echoConstant, "who counts")
	redisURL := flags.String("redis", "", "URL of the Redis")
	if err := parse(flags, args); err != nil {
		return err
	}
	handler, end, err := openIncr(ctx, *side, *redisURL)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end()) }()
	return serve(stdin, stdout, handler, about(func() int64 { return 0 }))
}

// openIncr is the handler of a side, and what ends it.
func openIncr(ctx context.Context, side, redisURL string) (http.Handler, func() error, error) {
	switch side {
	case echoConstant:
		var n atomic.Int64
		return bareIncr(func(context.Context, string) (int64, error) { return n.Add(1), nil }), func() error { return nil }, nil
	case echoCounters, echoMiddleware:
	default:
		return nil, nil, usageError{fmt.Errorf("no side %q", side)}
	}
	store, err := redisstore.OpenConfig(ctx, redisstore.Config{URL: redisURL, Timeout: 5 * time.Second})
	if err != nil {
		return nil, nil, err
	}
	counters := counter.New(store, counter.Config{})
	e := bareIncr(counters.Incr)
	if side == echoMiddleware {
		useMiddleware(e)
	}
	return e, func() error { return errors.Join(counters.Close(), store.Close()) }, nil
}

// startService starts coatcheck's service, and returns its address when it answers.
func startService(ctx context.Context, binary, redisURL string) (addr string, end func() error, err error) {
	service, err := start(ctx, binary, "serve", "--json", "--listen", "127.0.0.1:0", "--redis", redisURL, "--new-pools", "trust",
		"--identity", "bench",
		"--log-level", "error", "--store-timeout", "5s")
	if err != nil {
		return "", nil, err
	}
	end = func() error { service.end(); return nil }
	var started struct {
		URL string `json:"url"`
	}
	if err := json.NewDecoder(service.lines).Decode(&started); err != nil {
		return "", nil, errors.Join(fmt.Errorf("the service does not say where it is: %w", err), end())
	}
	return strings.TrimPrefix(started.URL, "http://"), end, nil
}

// counted is what a bare handler answers, the same as the service does.
type counted struct {
	Key   string `json:"key"`
	Value int64  `json:"value"`
}

// bareIncr is the least that such a service can be.
func bareIncr(incr func(ctx context.Context, name string) (int64, error)) *echo.Echo {
	e := echo.New()
	e.GET("/incr/:key", func(c echo.Context) error {
		name := c.Param("key")
		value, err := incr(c.Request().Context(), name)
		if err != nil {
			return err
		}
		return c.JSON(http.StatusOK, counted{Key: name, Value: value})
	})
	return e
}

// startWebdis starts Webdis in front of a Redis, and returns when it answers.
func startWebdis(ctx context.Context, binary, redisAddr string) (side incrSide, err error) {
	folder, err := os.MkdirTemp("", "coatcheck-bench-")
	if err != nil {
		return side, err
	}
	remove := func() error { return os.RemoveAll(folder) }
	side, child, err := runWebdis(ctx, binary, folder, redisAddr)
	if err != nil {
		return side, errors.Join(err, remove())
	}
	side.end = func() error { child.end(); return remove() }
	for {
		select {
		case <-child.done:
			return side, errors.Join(errors.New("webdis ended before it answered"), side.end())
		default:
		}
		var dialer net.Dialer
		conn, err := dialer.DialContext(ctx, "tcp", side.addr)
		if err == nil {
			return side, conn.Close()
		}
		if err := pause(ctx, 10*time.Millisecond); err != nil {
			return side, errors.Join(err, side.end())
		}
	}
}

func runWebdis(ctx context.Context, binary, folder, redisAddr string) (side incrSide, webdis *child, err error) {
	port, err := freePort()
	if err != nil {
		return side, nil, err
	}
	host, redisPort, err := net.SplitHostPort(redisAddr)
	if err != nil {
		return side, nil, err
	}
	number, err := strconv.Atoi(redisPort)
	if err != nil {
		return side, nil, err
	}
	config, err := json.Marshal(map[string]any{
		"redis_host": host, "redis_port": number, "http_host": "127.0.0.1", "http_port": port, "threads": 2, "pool_size": 20,
		"daemonize": false, "database": 0,
		"verbosity": 0, "logfile": filepath.Join(folder, "log"),
	})
	if err != nil {
		return side, nil, err
	}
	file := filepath.Join(folder, "webdis.json")
	if err := os.WriteFile(file, config, 0o600); err != nil {
		return side, nil, err
	}
	webdis, err = start(ctx, binary, file)
	side = incrSide{name: webdisService, addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), path: "/INCR/" + webdisService,
		key: func(name string) string { return webdisService + name }}
	return side, webdis, err
}
