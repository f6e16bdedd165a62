package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"

	"github.com/coatcheck/coatcheck/gateway"
	"github.com/coatcheck/coatcheck/redisstore"
)

// The ways to the service that the gateway command compares.
const (
	reverseProxy    = "reverse-proxy" // httputil.ReverseProxy and nothing else
	gatewayOpen     = "gateway"       // the gateway, on a route that it does not guard
	gatewayGuarding = "gateway, guarded"
)

// gatewayCommand compares the gateway with a bare reverse proxy in front of the same service.
func gatewayCommand(ctx context.Context, args []string, _ io.Reader, stdout io.Writer) (err error) {
	flags := flag.NewFlagSet("gateway", flag.ContinueOnError)
	var plan plan
	plan.flags(flags, "1,64")
	if err := plan.parse(flags, args); err != nil {
		return err
	}
	folder, err := os.MkdirTemp("", "coatcheck-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	service, err := startServer(ctx, "serve", "-shape", unguarded)
	if err != nil {
		return err
	}
	c, err := newContest(ctx, reverseProxy, gatewaySides("http://"+service.addr, folder), plan.span())
	if err != nil {
		return errors.Join(err, service.stop())
	}
	c.behind = service
	defer func() { err = errors.Join(err, c.end()) }()
	if err := c.play(ctx, plan.rounds, plan.conns); err != nil {
		return err
	}
	result, err := c.table(ctx, "gateway", plan)
	if err != nil {
		return err
	}
	result.Notes = append(result.Notes, "server µs: the proxy and its service together.")
	return plan.out.write(stdout, result)
}

func gatewaySides(upstream, folder string) []side {
	way := func(name string) []string {
		return []string{"proxy", "-way", name, "-upstream", upstream, "-folder", folder}
	}
	return []side{
		{name: reverseProxy, args: way(reverseProxy), plain: true},
		{name: gatewayOpen, args: way(gatewayOpen), plain: true},
		{name: gatewayGuarding, args: way(gatewayGuarding)},
		{name: gatewayGuarding + ", replay", args: way(gatewayGuarding), replay: true},
	}
}

// proxyCommand is a proxy process. It prints what serveCommand prints.
func proxyCommand(ctx context.Context, args []string, stdin io.Reader, stdout io.Writer) (err error) {
	flags := flag.NewFlagSet("proxy", flag.ContinueOnError)
	var p proxy
	flags.StringVar(&p.way, "way", reverseProxy, "how requests get to the service")
	flags.StringVar(&p.upstream, "upstream", "", "URL of the service")
	flags.StringVar(&p.redisURL, "redis", "", "URL of the Redis that the gateway uses")
	flags.StringVar(&p.folder, "folder", "", "where the gateway's file of routes may be written")
	if err := parse(flags, args); err != nil {
		return err
	}
	handler, end, err := p.open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end()) }()
	return serve(stdin, stdout, handler, about(func() int64 { return 0 }))
}

// proxy is one way to the service.
type proxy struct{ way, upstream, redisURL, folder string }

func (p proxy) open(ctx context.Context) (handler http.Handler, end func() error, err error) {
	if p.way == reverseProxy {
		handler, err = bareProxy(p.upstream)
		return handler, func() error { return nil }, err
	}
	return p.openGateway(ctx)
}

// bareProxy is what a reverse proxy costs without any gateway. It keeps as many idle connections as
// the gateway does, since net/http's default of two would make it dial for nearly every request.
func bareProxy(upstream string) (http.Handler, error) {
	target, err := url.Parse(upstream)
	if err != nil {
		return nil, err
	}
	return &httputil.ReverseProxy{
		Transport: &http.Transport{MaxIdleConnsPerHost: 256, DisableCompression: true},
		Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(target)
			p.SetXForwarded()
		},
	}, nil
}

func (p proxy) openGateway(ctx context.Context) (http.Handler, func() error, error) {
	upstream, err := gateway.ParseUpstream(p.upstream)
	if err != nil {
		return nil, nil, err
	}
	config := gateway.Config{Upstream: upstream}
	route := "{match: POST /pay}"
	switch p.way {
	case gatewayOpen:
		route = "{match: POST /pay, guard: false}"
	case gatewayGuarding:
	default:
		return nil, nil, usageError{fmt.Errorf("no way %q", p.way)}
	}
	config.RoutesFile = filepath.Join(p.folder, p.way+".yaml")
	if err := os.WriteFile(config.RoutesFile, []byte("routes: ["+route+"]\n"), 0o600); err != nil {
		return nil, nil, err
	}
	if config.Store, err = redisstore.Open(ctx, p.redisURL); err != nil {
		return nil, nil, err
	}
	g, err := gateway.New(config)
	if err != nil {
		return nil, nil, errors.Join(err, config.Store.Close())
	}
	return g, func() error { return errors.Join(g.Close(ctx), config.Store.Close()) }, nil
}
