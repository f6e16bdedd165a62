package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/coatcheck/coatcheck/client"
	"github.com/coatcheck/coatcheck/cmd/coatcheck/internal/config"
	"github.com/coatcheck/coatcheck/internal/audit"
	"github.com/coatcheck/coatcheck/internal/requestlog"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/server"
)

// ask has a command run with a client of the running service or, if a Redis is named, of a service
// in this process, so that both decide alike.
func (p *program) ask(command *cobra.Command, s *source, do func(context.Context, *client.Client, []string) error) *cobra.Command {
	command.RunE = func(c *cobra.Command, args []string) error {
		return p.with(c, s, func(ctx context.Context, service *client.Client) error { return do(ctx, service, args) })
	}
	return command
}

func (p *program) with(c *cobra.Command, s *source, do func(context.Context, *client.Client) error) error {
	return andSameFlags(c, kindOf(p.either(c, s, func(service *client.Client) error {
		return do(c.Context(), service)
	}, func(store *redisstore.Store) error {
		return askHere(c.Context(), p.serviceHere(&s.Service, store), do)
	})))
}

// andSameFlags completes the command that a refusal of a counter names: a service does not know
// where this one found it. A URL can hold a password, so the flags are named without their values.
func andSameFlags(c *cobra.Command, err error) error {
	if !errors.Is(err, client.ErrBehind) && !errors.Is(err, client.ErrPermanent) {
		return err
	}
	var flags []string
	for _, name := range []string{"redis", "server", "prefix"} {
		if c.Flags().Changed(name) {
			flags = append(flags, "--"+name)
		}
	}
	if flags == nil {
		return err
	}
	return fmt.Errorf("%w; give it the same %s as here", err, strings.Join(flags, " and "))
}

// longestHere bounds a request to a service in this process: calls to its store have timeouts.
const longestHere = 24 * time.Hour

// serviceHere is the configuration of a service in this process. It asks for no keys, writes no log
// of requests, leases no worker id before one is needed, and quotes the errors of its store.
func (p *program) serviceHere(c *config.Service, store *redisstore.Store) server.Config {
	counters := c.Server.Counters
	counters.Logger = p.logger(c)
	return server.Config{
		Store: store, Counters: counters, Locks: c.Server.Locks, Workers: c.Server.Workers, TokenKeys: c.Server.TokenKeys,
		AnswerKeys: c.Server.AnswerKeys,
		TellCauses: true, RequestTimeout: longestHere, Console: server.ConsoleConfig{Mode: server.ConsoleOff},
		AccessLog: requestlog.None, AuditLog: audit.None,
	}
}

// askHere runs a command with a client of a service in this process, which ends with it.
func askHere(ctx context.Context, config server.Config, command func(context.Context, *client.Client) error) error {
	here := server.New(config)
	transport := &handlerTransport{handler: here.Handler()}
	service, err := client.New(client.Config{
		URL: "http://localhost", HTTPClient: &http.Client{Transport: transport}, Timeout: longestHere, MaxAnswer: 1 << 40,
		Logger: silent(),
	})
	if err == nil {
		err = command(ctx, service)
	}
	transport.running.Wait()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewell)
	defer cancel()
	return errors.Join(err, here.Close(ctx))
}

// farewell is how long a release may take at a command's end.
const farewell = 2 * time.Second

// handlerTransport sends requests to a handler of this process. An answer is read while it is
// written, so none is in memory as a whole.
type handlerTransport struct {
	handler http.Handler
	running sync.WaitGroup // requests that the handler is at
}

// RoundTrip implements http.RoundTripper. It returns when the answer's header is written.
func (t *handlerTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	asked := r.Clone(r.Context())
	asked.RequestURI = asked.URL.RequestURI() // as net/http reads it from the request line
	asked.URL = &url.URL{Path: asked.URL.Path, RawPath: asked.URL.RawPath, RawQuery: asked.URL.RawQuery}
	asked.RemoteAddr = "127.0.0.1:0"
	if asked.Body == nil {
		asked.Body = http.NoBody
	}
	body, into := io.Pipe()
	a := &handled{header: http.Header{}, body: into, begun: make(chan struct{})}
	t.running.Go(func() {
		t.handler.ServeHTTP(a, asked)
		a.WriteHeader(http.StatusOK) // unless it has one
		_ = asked.Body.Close()       // as a RoundTripper has to
		_ = into.Close()             // the reader takes it as the end
	})
	<-a.begun
	return &http.Response{
		Status: http.StatusText(a.status), StatusCode: a.status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: a.sent, Body: body, ContentLength: -1, Request: r,
	}, nil
}

type handled struct {
	header, sent http.Header // sent as it was when the answer began
	status       int
	body         *io.PipeWriter
	begun        chan struct{} // closed once sent and status are set
}

func (a *handled) Header() http.Header         { return a.header }
func (a *handled) Write(p []byte) (int, error) { a.WriteHeader(http.StatusOK); return a.body.Write(p) }
func (a *handled) Flush()                      { a.WriteHeader(http.StatusOK) }
func (a *handled) WriteHeader(status int) {
	if a.status == 0 {
		a.status, a.sent = status, a.header.Clone()
		close(a.begun)
	}
}
