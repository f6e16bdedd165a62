package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"slices"
	"strings"

	"github.com/coatcheck/coatcheck/access"
	"github.com/coatcheck/coatcheck/internal/frontdoor"
	"github.com/coatcheck/coatcheck/redisstore"
)

// checkAccess finds what is wrong with who may come in, and how: files, and settings that only
// together can be judged.
func (c *config) checkAccess() error {
	return errors.Join(c.checkAccessFiles(), c.checkTogether())
}

func (c *config) checkAccessFiles() error {
	var faults []error
	if c.access != "" {
		_, _, err := access.ReadFile(c.access)
		if err != nil {
			err = fmt.Errorf("access: %w", err)
		}
		faults = append(faults, err)
	}
	if c.tlsCert != "" && c.tlsKey != "" {
		_, _, err := c.tlsFiles().load()
		faults = append(faults, err)
	}
	return errors.Join(faults...)
}

// checkTogether finds settings that do not go together.
func (c *config) checkTogether() error {
	var faults []error
	wrong := func(is bool, text string) {
		if is {
			faults = append(faults, errors.New(text))
		}
	}
	embedded := c.redis == "" || c.redis == "embedded:"
	wrong(c.accessStore && embedded, "access-store: nobody but the service reaches the embedded store, so no key can be added to it; take --access or --access-keys")
	wrong(c.controlled() && !slices.Equal(c.principalHeaders, defaultPrincipal), "principal-headers: not with access, where the key or certificate says who is asking")
	wrong(c.rate.N > 0 && !c.controlled(), "rate: only with access (--access, --access-keys or --access-store), which says whose requests are counted")
	wrong(c.burst > 0 && c.rate.N == 0, "burst: only with rate")
	wrong(c.maxBytesInFlight > 0 && c.maxBytesInFlight < 2*c.maxBody, "max-bytes-in-flight: a body of max-body does not fit into it, twice as it is in memory")
	wrong((c.tlsCert == "") != (c.tlsKey == ""), "tls-cert and tls-key: one without the other")
	wrong(c.tlsClientCA != "" && c.tlsCert == "", "tls-client-ca: only with tls-cert and tls-key")
	return errors.Join(append(faults, c.checkListen(), c.checkAdmin("admin-listen", c.adminListen))...)
}

// defaultPrincipal are the headers of --principal-headers where nothing is said.
var defaultPrincipal = []string{"Authorization"}

// controlled reports whether the service asks who is asking.
func (c *config) controlled() bool {
	return c.access != "" || len(c.accessKeys) > 0 || c.accessStore
}

// checkListen refuses to be reached by others without encryption, or without asking who they are.
func (c *config) checkListen() error {
	if missing := c.exposed(); len(missing) > 0 && !c.insecure {
		return fmt.Errorf("listen: %s can be reached from other machines: %s; or listen on 127.0.0.1; or say --insecure (COATCHECK_INSECURE=true) if something else encrypts and asks who is there",
			c.listen, strings.Join(missing, ", and "))
	}
	return nil
}

// exposed says what a service lacks that others than this machine can reach; nil if it lacks
// nothing, or they cannot.
func (c *config) exposed() (missing []string) {
	host, _, err := net.SplitHostPort(c.listen)
	if err != nil || isLoopback(host) {
		return nil
	}
	if c.tlsCert == "" {
		missing = append(missing, "encrypt it (--tls-cert and --tls-key)")
	}
	if !c.controlled() && (c.tlsClientCA == "" || c.tlsClientAuth != requireCertificate) {
		missing = append(missing, "say who may come in (--access, --access-keys or --access-store; or --tls-client-ca with --tls-client-auth require)")
	}
	return missing
}

// isLoopback reports whether only this machine can reach a host.
func isLoopback(host string) bool {
	if ip := net.ParseIP(host); ip != nil {
		return ip.IsLoopback()
	}
	return strings.EqualFold(host, "localhost")
}

// openListener starts to listen, with TLS if it is set.
func (c *config) openListener(log *slog.Logger) (net.Listener, *certificates, error) {
	for _, missing := range c.exposed() {
		log.Warn("insecure: other machines can reach this service", "listen", c.listen, "fix", missing)
	}
	secure, err := c.openTLS(log)
	if err != nil {
		return nil, nil, err
	}
	listener, err := net.Listen("tcp", c.listen)
	if err != nil {
		secure.Close()
		return nil, nil, fmt.Errorf("%w; choose another address with --listen, or --listen 127.0.0.1:0 for a free port", err)
	}
	return secure.around(frontdoor.Plain(listener)), secure, nil
}

// openAccess reads who may do what; nil if callers are not asked.
func (c *config) openAccess(ctx context.Context, store *redisstore.Store, log *slog.Logger) (*access.Policy, error) {
	if !c.controlled() {
		return nil, nil //nolint:nilnil // no book means that everybody may do everything
	}
	config := access.Config{File: c.access, Keys: c.accessKeys, Limit: c.limit(), Logger: log}
	if c.accessStore {
		config.Store = store
	}
	return access.Open(ctx, config)
}

// limit is how often those may ask who have no rate of their own.
func (c *config) limit() access.Limit { return access.Limit{Rate: c.rate, Burst: int(c.burst)} }

// scheme is that of the service's URL.
func (c *config) scheme() string {
	if c.tlsCert != "" {
		return "https://"
	}
	return "http://"
}

// recordsSetting is a list of what keys are worth, of which only the ids are ever shown.
func recordsSetting(name, help string, into *[]access.Record) *setting {
	ids := func(value string) string {
		records, err := access.ParseRecords(value)
		if err != nil {
			return "(not records)"
		}
		var ids []string
		for _, record := range records {
			ids = append(ids, record.ID+":…")
		}
		return strings.Join(ids, ",")
	}
	return &setting{name: name, unit: "record,…", help: help, redact: ids, parse: func(s string) (err error) {
		*into, err = access.ParseRecords(s)
		return err
	}}
}

func rateSetting(name, help string, into *access.Rate) *setting {
	return &setting{name: name, unit: "n/s, n/m or n/h", help: help, parse: func(s string) error { return into.UnmarshalText([]byte(s)) }}
}

// origins is a list of origins of pages, each as a browser sends it.
func origins(name, help string, into *[]string) *setting {
	return &setting{name: name, unit: "origin,…", help: help, parse: func(s string) error {
		*into = nil
		for part := range strings.FieldsFuncSeq(s, func(r rune) bool { return r == ',' || r == ' ' }) {
			u, err := url.Parse(part)
			if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.Scheme+"://"+u.Host != part || strings.ContainsAny(part, "*") {
				return errors.New("an origin is scheme, host and port alone, such as https://shop.example; there is no * for all: whoever may ask is named")
			}
			if !slices.Contains(*into, part) {
				*into = append(*into, part)
			}
		}
		return nil
	}}
}

// hostNames is a list of names under which clients ask.
func hostNames(name, help string, into *[]string) *setting {
	return &setting{name: name, unit: "name,…", help: help, parse: func(s string) error {
		*into = nil
		for part := range strings.FieldsFuncSeq(s, func(r rune) bool { return r == ',' || r == ' ' }) {
			if err := frontdoor.CheckHost(part); err != nil {
				return fmt.Errorf("%q: %w", part, err)
			}
			*into = append(*into, part)
		}
		return nil
	}}
}

// hosts are the names under which the service answers: those that are set, and that which it was
// told to listen on, unless every name is good.
func (c *config) hosts() []string {
	host, _, err := net.SplitHostPort(c.listen)
	if err != nil || host == "" || c.controlled() && len(c.allowedHosts) == 0 {
		return c.allowedHosts
	}
	return append(slices.Clone(c.allowedHosts), strings.ToLower(host))
}

// hidden is a setting whose value is never shown.
func hidden(s *setting) *setting {
	s.redact = func(value string) string {
		if value == "" {
			return ""
		}
		return "(set)"
	}
	return s
}
