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
	"time"

	"github.com/coatcheck/coatcheck/internal/frontdoor"
)

// The admin listener is for the operator of the process, not for its clients: probes, metrics, and
// the profiles of package net/http/pprof. It asks for no key, so it is on loopback unless
// --insecure says otherwise.

// adminSetting is where the admin listener of the service is; empty turns it off.
func adminSetting(c *config) *setting {
	s := optional(address("admin-listen", "", "where /livez, /readyz, /metrics and /debug/pprof/ are for the operator, without a key; on loopback, unless --insecure is said; empty: nowhere", &c.adminListen))
	parse := s.parse
	s.parse = func(text string) error {
		c.adminListen = ""
		if err := parse(text); err != nil {
			return errors.New(`"` + text + `" is not host:port, such as 127.0.0.1:9091`)
		}
		return nil
	}
	return s
}

// checkAdmin refuses an admin listener that others than this machine can reach, and one where the
// clients' is.
func (c *config) checkAdmin(name, admin string) error {
	host, port, err := net.SplitHostPort(admin)
	if err != nil {
		return nil //nolint:nilerr // it is off, or told already
	}
	if admin == c.listen && port != "0" {
		return fmt.Errorf("%s: %s is where clients come in (listen): take another port", name, admin)
	}
	if !isLoopback(host) && !c.insecure {
		return fmt.Errorf("%s: %s can be reached from other machines, and asks nobody who they are: listen on 127.0.0.1; or say --insecure (COATCHECK_INSECURE=true) if something else keeps others out", name, admin)
	}
	return nil
}

// warnAdmin says at the start that others can reach the admin listener.
func warnAdmin(admin string, log *slog.Logger) {
	if host, _, err := net.SplitHostPort(admin); err == nil && !isLoopback(host) {
		log.Warn("insecure: other machines can reach the admin listener, which shows profiles of this process", "listen", admin)
	}
}

// profiles are those of package net/http/pprof. Its page of the command line is left out: there can
// be passwords in one.
func profiles() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", http.NotFound)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// NaN is not
		if seconds, err := strconv.ParseFloat(r.FormValue("seconds"), 64); err == nil && !(seconds <= longestProfile.Seconds()) {
			http.Error(w, fmt.Sprintf("seconds: a profile takes up to %.0f seconds", longestProfile.Seconds()), http.StatusBadRequest)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// longestProfile is how long a profile or a trace may take: each slows the process that it looks
// at.
const longestProfile = 5 * time.Minute

// adminSide is a running admin listener; nil is none.
type adminSide struct {
	at      net.Addr
	web     *http.Server
	serving sync.WaitGroup
}

// openAdmin starts the admin listener of the service; nil if it is off.
func (c *config) openAdmin(side http.Handler, log *slog.Logger) (*adminSide, error) {
	if c.adminListen == "" {
		return nil, nil //nolint:nilnil // off is nothing
	}
	warnAdmin(c.adminListen, log)
	listener, err := net.Listen("tcp", c.adminListen)
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

// url is where the admin side is; "" if it is off.
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
