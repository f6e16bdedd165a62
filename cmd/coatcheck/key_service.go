package main

import (
	"fmt"
	"net/http"

	"github.com/coatcheck/coatcheck/client"
)

// serviceAt is where a running service is, and how it is asked.
type serviceAt struct {
	server string
	apiKey string
	ca     string
}

func (s *serviceAt) settings() []*setting {
	return []*setting{
		text("server", "http://127.0.0.1:8080", "URL", "the running service to ask", &s.server),
		hidden(text("api-key", "", "key", "the API key to show it; better in the environment, since a command line can be seen by others", &s.apiKey)),
		text("ca", "", "file", "authorities in PEM by which its certificate is judged; empty: those of the system", &s.ca),
	}
}

// client returns a client of the service.
func (s *serviceAt) client() (*client.Client, error) {
	config := client.Config{URL: s.server, APIKey: s.apiKey}
	if s.ca != "" {
		secure, err := trusting(s.ca)
		if err != nil {
			return nil, err
		}
		config.HTTPClient = &http.Client{Transport: &http.Transport{TLSClientConfig: secure, ForceAttemptHTTP2: true, Proxy: http.ProxyFromEnvironment}}
	}
	service, err := client.New(config)
	if err != nil {
		return nil, fmt.Errorf("server: %w", err)
	}
	return service, nil
}
