package cli

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/coatcheck/coatcheck/client"
	"github.com/coatcheck/coatcheck/cmd/coatcheck/internal/config"
)

// serviceAt is the address of a running service, and the settings of its client.
type serviceAt struct {
	server string
	apiKey string
	ca     string
	cert   string
	key    string
}

func (s *serviceAt) settings() []*config.Setting {
	return config.In("Service",
		config.Text("server", "http://127.0.0.1:8080", "URL", "the running service to ask", &s.server),
		config.Hidden(config.Text("api-key", "", "key",
			"the API key to show it; better in the environment, since a command line can be seen by others", &s.apiKey)),
		config.Text("server-ca", "", "file", "authorities in PEM by which its certificate is judged; empty: those of the system", &s.ca),
		config.Text("client-cert", "", "file", "a client certificate in PEM to show it, where it asks for one; what signed it may follow it",
			&s.cert),
		config.Text("client-key", "", "file", "the key of that certificate in PEM", &s.key),
	)
}

// secure returns the client's TLS settings. The error lists every fault of the files.
func (s *serviceAt) secure() (*tls.Config, error) {
	secure, err := config.Trusting(s.ca)
	if (s.cert == "") != (s.key == "") {
		err = errors.Join(err, errors.New("client-cert and client-key: one without the other; a client certificate takes both"))
	}
	if s.cert == "" || s.key == "" {
		return secure, err
	}
	own, unread := config.Showing(s.cert, s.key)
	if err := errors.Join(err, unread); err != nil {
		return nil, err
	}
	secure.Certificates = []tls.Certificate{own}
	return secure, nil
}

// silent is the log of a command's client: a command says itself what has happened.
func silent() *slog.Logger { return slog.New(slog.DiscardHandler) }

// client returns a client of the service with a connection for each caller; 0 = package client's.
func (s *serviceAt) client(callers int) (*client.Client, error) {
	config := client.Config{URL: s.server, APIKey: s.apiKey, Logger: silent()}
	secure, err := s.secure()
	if err != nil {
		return nil, err
	}
	if s.ca != "" || s.cert != "" || callers > 0 {
		config.HTTPClient = &http.Client{Transport: &http.Transport{
			TLSClientConfig: secure, ForceAttemptHTTP2: true, Proxy: http.ProxyFromEnvironment, MaxIdleConnsPerHost: callers,
			IdleConnTimeout: time.Minute,
		}}
	}
	service, err := client.New(config)
	if err != nil {
		return nil, fmt.Errorf("server: %w", err)
	}
	return service, nil
}
