package tracing

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/coatcheck/coatcheck/internal/noupgrade"
)

// variable is an exporter's setting, for traces or for all signals, as
// https://opentelemetry.io/docs/specs/otel/protocol/exporter/ has them; "" = it is not set.
func variable(name string) string {
	return cmp.Or(
		strings.TrimSpace(os.Getenv("OTEL_EXPORTER_OTLP_TRACES_"+name)),
		strings.TrimSpace(os.Getenv("OTEL_EXPORTER_OTLP_"+name)),
	)
}

// newClient returns a client for a collector's base URL, or for that of the environment, with the
// environment's other settings. The error names all faulty variables, but no value.
func newClient(base, version string, log *slog.Logger) (*client, error) {
	endpoint, atFault := endpointOf(base)
	headers, badHeaders := headersOf(variable("HEADERS"))
	headers.Set("User-Agent", cmp.Or(headers.Get("User-Agent"), "coatcheck/"+version))
	trust, badTrust := trustOf()
	timeout, badTimeout := strconv.ParseUint(cmp.Or(variable("TIMEOUT"), "10000"), 10, 31)
	if badTimeout != nil {
		badTimeout = errors.New("OTEL_EXPORTER_OTLP_TIMEOUT is a number of milliseconds")
	}
	var badCompression error
	compression := cmp.Or(variable("COMPRESSION"), "none")
	if compression != "none" && compression != "gzip" {
		badCompression = errors.New("OTEL_EXPORTER_OTLP_COMPRESSION is gzip or none")
	}
	if protocol := variable("PROTOCOL"); protocol != "" && protocol != "http/protobuf" {
		log.Warn("traces are sent by http/protobuf, whatever OTEL_EXPORTER_OTLP_PROTOCOL says", "protocol", protocol)
	}
	if err := errors.Join(atFault, badHeaders, badTrust, badTimeout, badCompression); err != nil {
		return nil, err
	}
	transport := &http.Transport{
		Proxy: http.ProxyFromEnvironment, TLSClientConfig: trust, ForceAttemptHTTP2: true,
		IdleConnTimeout: 90 * time.Second,
	}
	sender := &http.Client{
		Transport: noupgrade.Transport{Next: transport}, Timeout: time.Duration(timeout) * time.Millisecond,
		// A redirection can make of a POST a GET, which is answered well, and takes headers along.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	away := &complaints{log: log, text: "no answer from the collector of traces"}
	return &client{sender, endpoint, headers, compression == "gzip", away, make(chan struct{})}, nil
}

// endpointOf returns where spans are posted. What is for traces alone goes first, and is the whole
// URL; after a base URL comes /v1/traces.
func endpointOf(base string) (string, error) {
	name, text := "", base
	if base == "" {
		name, text = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: ", strings.TrimSpace(os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"))
	}
	whole := base == "" && text != ""
	if text == "" {
		name, text = "OTEL_EXPORTER_OTLP_ENDPOINT: ", strings.TrimSpace(os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT"))
	}
	if err := CheckEndpoint(text); err != nil {
		return "", fmt.Errorf("%s%w", name, err)
	}
	at, err := url.Parse(text)
	if err != nil {
		return "", err
	}
	if !whole {
		at = at.JoinPath("v1", "traces")
	}
	return at.String(), nil
}

// headersOf reads pairs as in key1=value1,key2=value2, whose values are percent-encoded.
func headersOf(text string) (http.Header, error) {
	headers := http.Header{}
	for pair := range strings.SplitSeq(text, ",") {
		if strings.TrimSpace(pair) == "" {
			continue
		}
		name, encoded, found := strings.Cut(pair, "=")
		name = strings.TrimSpace(name)
		value, err := url.PathUnescape(encoded)
		value = strings.TrimSpace(value)
		if !found || err != nil || !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(value) {
			return headers, errors.New("OTEL_EXPORTER_OTLP_HEADERS is key1=value1,key2=value2 with percent-encoded values")
		}
		headers.Set(name, value)
	}
	return headers, nil
}

// trustOf reads whom to trust, and what to show to a collector that asks; nil = as the system does.
func trustOf() (*tls.Config, error) {
	authorities, certificate, key := variable("CERTIFICATE"), variable("CLIENT_CERTIFICATE"), variable("CLIENT_KEY")
	if authorities == "" && certificate == "" && key == "" {
		return nil, nil //nolint:nilnil // nil is the default of net/http
	}
	trust := &tls.Config{MinVersion: tls.VersionTLS12}
	var failed error
	if authorities != "" {
		text, err := os.ReadFile(authorities)
		trust.RootCAs = x509.NewCertPool()
		if err == nil && !trust.RootCAs.AppendCertsFromPEM(text) {
			err = errors.New("it holds no certificate in PEM")
		}
		if err != nil {
			failed = fmt.Errorf("OTEL_EXPORTER_OTLP_CERTIFICATE: %w", err)
		}
	}
	if certificate != "" || key != "" {
		pair, err := tls.LoadX509KeyPair(certificate, key)
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE and _CLIENT_KEY: %w", err))
		}
		trust.Certificates = []tls.Certificate{pair}
	}
	return trust, failed
}
