package config

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/coatcheck/coatcheck/access"
	"github.com/coatcheck/coatcheck/idempotency/jwtprincipal"
)

// CheckAccess finds the faults of access control and TLS: in files, and in settings together.
func (c *Service) CheckAccess() error {
	var keys, certificate error
	if c.Access.File != "" {
		_, keys = access.ReadFile(c.Access.File)
	}
	if c.TLSCert != "" && c.TLSKey != "" {
		_, _, certificate = c.TLSFiles().Load()
	}
	return errors.Join(inSetting("access", keys), certificate, c.CheckTogether(), c.checkTokenKeys())
}

// CheckStore finds the faults of the settings of the store. A store in memory has to be asked for:
// what a variable that is not set would begin, it would forget.
func (c *Service) CheckStore() error {
	if c.Store.URL == "" {
		return errors.New("redis: missing: name the Redis, as --redis redis://localhost:6379, or say --redis embedded: for a store in memory, " +
			"which ends with the process (serve --dev takes that by itself)")
	}
	return c.Store.Check()
}

// CheckTogether finds settings that do not go together.
func (c *Service) CheckTogether() error {
	var faults []error
	wrong := func(is bool, text string) {
		if is {
			faults = append(faults, errors.New(text))
		}
	}
	wrong(c.AccessStore && c.OnEmbedded(),
		"access-store: only the service reaches the embedded store, so no key can be added to it; take --access or --access-keys")
	wrong(c.Controlled() && !slices.Equal(c.PrincipalHeaders, []string{defaultPrincipal}),
		"principal-headers: not with access, where the key or certificate says who is asking")
	wrong(c.Access.Limit.Rate.N > 0 && !c.Controlled(),
		"rate: only with access (--access, --access-keys or --access-store), which says whose requests are counted")
	wrong(c.Access.Limit.Burst > 0 && c.Access.Limit.Rate.N == 0, "burst: only with rate")
	wrong(c.Server.MaxBytes > 0 && c.Server.MaxBytes < 2*c.Server.MaxBody,
		"max-bytes-in-flight: a body of max-body-bytes does not fit into it, twice as it is in memory")
	wrong((c.TLSCert == "") != (c.TLSKey == ""), "tls-cert and tls-key: one without the other")
	wrong(c.TLSClientCA != "" && c.TLSCert == "", "tls-client-ca: only with tls-cert and tls-key")
	wrong(c.Controlled() && c.PrincipalJWT.JWKS != "", "principal-jwt-jwks: not with access, where the key or certificate says who is asking")
	return errors.Join(append(faults, c.checkPrincipal(), c.CheckListen(), c.CheckAdmin())...)
}

// OneCaller reports whether nothing is to tell callers apart.
func (c *Service) OneCaller() bool { return c.PrincipalJWT.JWKS == "" && len(c.PrincipalHeaders) == 0 }

// checkPrincipal finds what is wrong with the settings of verified tokens.
func (c *Service) checkPrincipal() error {
	jwt := c.PrincipalJWT
	if jwt.JWKS == "" {
		if jwt.Issuers != nil || jwt.Audience != "" || jwt.Algorithms != nil {
			return errors.New("principal-jwt-jwks: missing, beside other settings of tokens (principal-jwt-…): no token would be verified")
		}
		return nil
	}
	var faults []error
	if !slices.Equal(c.PrincipalHeaders, []string{defaultPrincipal}) {
		faults = append(faults, errors.New("principal-headers: not with principal-jwt-jwks, where the bearer token says who is asking"))
	}
	if err := jwt.Check(); err != nil {
		for fault := range strings.Lines(err.Error()) {
			faults = append(faults, errors.New("principal-jwt-"+strings.TrimSpace(fault)))
		}
	}
	return errors.Join(faults...)
}

// checkTokenKeys reads the keys of tokens where they are in a file.
func (c *Service) checkTokenKeys() error {
	if isFile := c.PrincipalJWT.JWKS != "" && !c.PrincipalJWT.IsURL(); isFile && c.checkPrincipal() == nil {
		_, err := jwtprincipal.New(c.PrincipalJWT)
		return inSetting("principal-jwt-jwks", err)
	}
	return nil
}

// Controlled reports whether the service controls access.
func (c *Service) Controlled() bool {
	return c.Access.File != "" || len(c.Access.Keys) > 0 || c.AccessStore
}

// CheckListen refuses to be reachable by others without encryption, or without access control.
func (c *Service) CheckListen() error {
	if missing := c.Exposed(); len(missing) > 0 && !c.Insecure {
		return fmt.Errorf("listen: %s can be reached from other machines: %s; or listen on 127.0.0.1; or say --insecure "+
			"(COATCHECK_INSECURE=true) if something else encrypts and asks who is there",
			c.Listen, strings.Join(missing, ", and "))
	}
	return nil
}

// Exposed names the missing protections of a service that other machines can reach; nil if none.
func (c *Service) Exposed() (missing []string) {
	host, _, err := net.SplitHostPort(c.Listen)
	if err != nil || IsLoopback(host) {
		return nil
	}
	if c.TLSCert == "" {
		missing = append(missing, "encrypt it (--tls-cert and --tls-key)")
	}
	if !c.Controlled() && (c.TLSClientCA == "" || c.TLSClientAuth != RequireCertificate) {
		missing = append(missing,
			"say who may come in (--access, --access-keys or --access-store; or --tls-client-ca with --tls-client-auth require)")
	}
	return missing
}

// IsLoopback reports whether only this machine can reach a host.
func IsLoopback(host string) bool {
	if ip := net.ParseIP(host); ip != nil {
		return ip.IsLoopback()
	}
	return strings.EqualFold(host, "localhost")
}

// Scheme is that of the service's URL.
func (c *Service) Scheme() string {
	if c.TLSCert != "" {
		return "https://"
	}
	return "http://"
}

// Hosts are the names under which the service answers: those of the setting, and the one that it
// listens on, unless every name is good.
func (c *Service) Hosts() []string {
	host, _, err := net.SplitHostPort(c.Listen)
	if err != nil || host == "" || c.Controlled() && len(c.Server.AllowedHosts) == 0 {
		return c.Server.AllowedHosts
	}
	return append(slices.Clone(c.Server.AllowedHosts), strings.ToLower(host))
}

// CheckAdmin refuses an admin listener that other machines can reach, or at the clients' address.
func (c *Service) CheckAdmin() error {
	host, port, err := net.SplitHostPort(c.AdminListen)
	if err != nil {
		return nil //nolint:nilerr // it is off, or told already
	}
	if c.AdminListen == c.Listen && port != "0" {
		return fmt.Errorf("admin-listen: %s is where clients come in (listen): take another port", c.AdminListen)
	}
	if !IsLoopback(host) && !c.Insecure {
		return fmt.Errorf("admin-listen: %s can be reached from other machines, and asks no caller for a key: listen on 127.0.0.1; or say "+
			"--insecure (COATCHECK_INSECURE=true) if something else keeps others out", c.AdminListen)
	}
	return nil
}
