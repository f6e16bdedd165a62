package cli

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coatcheck/coatcheck/cmd/coatcheck/internal/config"
	"github.com/coatcheck/coatcheck/internal/frontdoor"
)

// The admin listener is for the operator of the process, not for its clients: probes, metrics, and
// the profiles of package net/http/pprof. It asks for no key, so it is on loopback unless
// --insecure says otherwise.

// warnAdmin warns at the start if others can reach the admin listener.
func warnAdmin(admin string, log *slog.Logger) {
	if host, _, err := net.SplitHostPort(admin); err == nil && !config.IsLoopback(host) {
		log.Warn("insecure: other machines can reach the admin listener, which asks for no key", "listen", admin)
	}
}

// profiles are those of package net/http/pprof, without the command line: it can hold passwords.
// nil = they are off.
func profiles(on bool) http.Handler {
	if !on {
		return nil
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", http.NotFound)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	return oneAtATime(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// NaN is not
		if seconds, err := strconv.ParseFloat(r.FormValue("seconds"), 64); err == nil && !(seconds <= longestProfile.Seconds()) {
			http.Error(w, fmt.Sprintf("seconds: a profile takes up to %.0f seconds", longestProfile.Seconds()), http.StatusBadRequest)
			return
		}
		mux.ServeHTTP(w, r)
	}))
}

// oneAtATime answers 429 while another request is answered: each profile can take as much memory as
// the process has.
func oneAtATime(next http.Handler) http.Handler {
	var busy atomic.Bool
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if busy.Swap(true) {
			w.Header().Set("Retry-After", "1")
			http.Error(w, "another profile is being taken: one at a time", http.StatusTooManyRequests)
			return
		}
		defer busy.Store(false)
		// a client that takes nothing does not keep the others out for ever
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(longestProfile + time.Minute))
		next.ServeHTTP(w, r)
	})
}

// longestProfile is how long a profile or a trace may take: each slows its process.
const longestProfile = 5 * time.Minute

// adminSide is a running admin listener; nil is none.
type adminSide struct {
	at      net.Addr
	web     *http.Server
	serving sync.WaitGroup
}

// openAdmin starts the admin listener of the service; nil if it is off.
func openAdmin(c *config.Service, side http.Handler, log *slog.Logger) (*adminSide, error) {
	if c.AdminListen == "" {
		return nil, nil //nolint:nilnil // off is nothing
	}
	warnAdmin(c.AdminListen, log)
	listener, err := net.Listen("tcp", c.AdminListen)
	if err != nil {
		return nil, fmt.Errorf("%w; choose another address with --admin-listen, or --admin-listen 127.0.0.1:0 for a free port", err)
	}
	door := frontdoor.New(frontdoor.Config{Logger: log})
	a := &adminSide{at: listener.Addr(), web: door.Server(side)}
	a.serving.Go(func() {
		if err := a.web.Serve(door.Around(listener)); !errors.Is(err, http.ErrServerClosed) {
			log.Error("the admin listener has ended", "error", err)
		}
	})
	return a, nil
}

// url is the URL of the admin side; "" if it is off.
func (a *adminSide) url() string {
	if a == nil {
		return ""
	}
	return "http://" + reachable(a.at.String())
}

// close ends it, and a profile that is being taken with it.
func (a *adminSide) close() error {
	if a == nil {
		return nil
	}
	err := a.web.Close()
	a.serving.Wait()
	return err
}
