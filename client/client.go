package client

import (
	"cmp"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/coatcheck/coatcheck/internal/noupgrade"
)

// Config is the service, and how to call it. The zero value of all but URL means the default.
type Config struct {
	// of the service, such as http://127.0.0.1:8080; a path in it stands before the service's own
	URL string
	// is sent to the service: use https except on this machine; "" = none. It is in no error and no
	// log
	APIKey string
	// it is copied and follows no redirects; nil = one of the client's own with net/http's defaults
	HTTPClient *http.Client
	Timeout    time.Duration // how long one request may take; 0 = 10 s
	// largest answer, in bytes; 0 = 16 MiB. A longer one counts as unreadable
	MaxAnswer int64
	Logger    *slog.Logger // nil = slog.Default(). It never sees a token or the proof of a claim
}

// Client asks one service. It is safe for concurrent use.
//
// # Lost replies
//
// A claim carries the secret that proves it, so Claim asks again by itself and gets the same grant.
// If no reply comes at all, nothing was started for it, but the service does not know: until the
// claim is given back or its lease lapses the token is in progress, and from then on in doubt under
// PolicyHold, free for the next attempt under [PolicyTakeover]. Do gives such a claim back, if the
// service takes that in time. A token whose issue was lost is of no use: issue another. Complete,
// Extend and Release with the same proof can be repeated without harm.
//
// An Add whose reply is lost leaves a gap. With a request id, asking again returns its values.
//
// An acquire of a lock whose reply is lost can leave the lock taken, without a holder, for its TTL.
//
// An acquire whose reply is lost costs a worker id until its TTL has passed: it cannot be used, and
// the next acquire gets another. Renew and release can be repeated.
type Client struct {
	base    string
	web     http.Client
	key     string
	timeout time.Duration
	most    int64
	log     *slog.Logger
}

// New returns a client. It sends nothing yet. The error names the faults of the configuration, but
// not the URL, which can hold a password.
func New(config Config) (*Client, error) {
	base, err := baseOf(config.URL)
	if err != nil {
		return nil, err
	}
	if config.Timeout < 0 || config.MaxAnswer < 0 {
		return nil, errors.New("client: a negative timeout or limit")
	}
	if strings.ContainsFunc(config.APIKey, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, errors.New("client: the API key has characters that no key has")
	}
	c := &Client{base: base, key: config.APIKey, timeout: config.Timeout, most: config.MaxAnswer, log: config.Logger}
	if config.HTTPClient != nil {
		c.web = *config.HTTPClient
	} else if standard, ok := http.DefaultTransport.(*http.Transport); ok {
		c.web.Transport = standard.Clone() // so that CloseIdleConnections closes only its own
	}
	c.web.Transport = noupgrade.Transport{Next: cmp.Or(c.web.Transport, http.DefaultTransport)}
	c.web.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	c.timeout = cmp.Or(c.timeout, 10*time.Second)
	c.most = cmp.Or(c.most, 16<<20)
	if c.log == nil {
		c.log = slog.Default()
	}
	return c, nil
}

// baseOf checks the service's URL and returns what stands before every path.
func baseOf(text string) (string, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return "", errors.New("client: the service's URL is http://host:port or https://host")
	case u.RawQuery != "" || u.Fragment != "" || u.ForceQuery:
		return "", errors.New("client: the service's URL has a query or a fragment")
	}
	return strings.TrimRight(u.String(), "/"), nil
}

// CloseIdleConnections closes the connections that no request is using now, so that none is left at
// a program's end. The client can still be used.
func (c *Client) CloseIdleConnections() { c.web.CloseIdleConnections() }
