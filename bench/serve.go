package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// serveCommand is a server process: it serves one shape on a free port until its standard input
// ends. It prints the address that is measured, and one where it tells how it does.
func serveCommand(ctx context.Context, args []string, stdin io.Reader, stdout io.Writer) (err error) {
	flags := flag.NewFlagSet("serve", flag.ContinueOnError)
	name := flags.String("shape", unguarded, "how the handler is guarded")
	redisURL := flags.String("redis", "", "URL of the Redis that the guard uses")
	if err := parse(flags, args); err != nil {
		return err
	}
	shape, err := shapeOf(*name)
	if err != nil {
		return err
	}
	guard, err := shape.guard(ctx, *redisURL)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, guard.close()) }()
	app := &application{}
	told := about(app.runs.Load)
	if guard.issue != nil {
		told.HandleFunc("GET /tokens", func(w http.ResponseWriter, r *http.Request) { tellTokens(w, r, guard) })
	}
	return serve(stdin, stdout, service(app.pay, guard), told)
}

// serve serves both handlers until its input ends.
func serve(stdin io.Reader, stdout io.Writer, measured, about http.Handler) error {
	failed := make(chan error, 2)
	for _, handler := range []http.Handler{measured, about} {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		server := &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute}
		defer server.Close()
		go func() { failed <- server.Serve(listener) }()
		fmt.Fprintln(stdout, listener.Addr())
	}
	ended := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.Discard, stdin)
		ended <- err
	}()
	select {
	case err := <-failed:
		return err
	case err := <-ended:
		return err
	}
}

// about tells how often the handler has run, and how much processor time this process has used, in
// microseconds.
func about(runs func() int64) *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /runs", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, runs()) })
	mux.HandleFunc("GET /cpu", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, processorTime()) })
	return mux
}

// tellTokens issues ?n= tokens, and tells them in lines.
func tellTokens(w http.ResponseWriter, r *http.Request, guard guard) {
	n, err := strconv.Atoi(r.URL.Query().Get("n"))
	tokens := make([]string, max(n, 0))
	if err == nil {
		err = forEach(r.Context(), func(i int) (err error) { tokens[i], err = guard.issue(r.Context()); return err }, n)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	fmt.Fprint(w, strings.Join(tokens, "\n"))
}

// server is a server process as its user sees it.
type server struct {
	*child

	addr    string // what is measured
	control string
}

// startServer starts a command of this program that serves.
func startServer(ctx context.Context, args ...string) (*server, error) {
	child, err := again(ctx, args...)
	if err != nil {
		return nil, err
	}
	s := &server{child: child}
	for _, addr := range []*string{&s.addr, &s.control} {
		if *addr, err = child.line(); err != nil {
			child.end()
			return nil, err
		}
	}
	return s, nil
}

// asking opens a connection for each question, so that none is left.
var asking = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

// ask reads what a server tells of itself at the address for that.
func ask(ctx context.Context, control, path string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+control+path, nil)
	if err != nil {
		return nil, err
	}
	answer, err := asking.Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", answer.Status, body)
	}
	return body, err
}

// number is a number that the server tells of itself.
func (s *server) number(ctx context.Context, path string) (float64, error) {
	body, err := ask(ctx, s.control, path)
	if err != nil {
		return 0, err
	}
	return strconv.ParseFloat(string(body), 64)
}
