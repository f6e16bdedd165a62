package redisstore

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// target is what a URL names.
type target struct {
	mode    Mode
	address string // for people

	server *redis.Options // standalone

	hosts              []string // sentinel and cluster
	master             string   // sentinel: the name of the set
	username, password string
	db                 int
	query              url.Values
}

const forms = "embedded: | redis://host:port | rediss://host:port | unix:///path | redis+sentinel://h1,h2,h3/<master>[/db] | redis+cluster://h1,h2,h3"

// parseURL reads a store's URL. Its errors never hold the URL itself, since that may hold a password.
func parseURL(text string) (target, error) {
	scheme, rest, found := strings.Cut(text, ":")
	switch {
	case text == "" || scheme == "embedded" && found && rest == "":
		return target{mode: Embedded, address: "embedded:"}, nil
	case !found:
		return target{}, fmt.Errorf("redis URL: no scheme; use %s", forms)
	}
	switch scheme {
	case "redis", "rediss", "unix":
		return parseStandalone(text)
	case "redis+sentinel":
		return parseSet(Sentinel, rest, "26379")
	case "redis+cluster":
		return parseSet(Cluster, rest, "6379")
	}
	return target{}, fmt.Errorf("redis URL: unknown scheme %q; use %s", scheme, forms)
}

// unsafe are go-redis's URL parameters that would undo what this package promises.
var unsafe = []string{"max_retries", "min_retry_backoff", "max_retry_backoff", "dial_timeout", "read_timeout", "write_timeout", "dialer_retries", "dialer_retry_timeout"}

func parseStandalone(text string) (target, error) {
	parsed, err := url.Parse(text)
	if err != nil {
		return target{}, fmt.Errorf("redis URL: %w", withoutURL(err))
	}
	for _, name := range unsafe {
		if parsed.Query().Has(name) {
			return target{}, fmt.Errorf("redis URL: parameter %s is not accepted: calls are never repeated, and end by the store's timeout", name)
		}
	}
	server, err := redis.ParseURL(text)
	if err != nil {
		return target{}, fmt.Errorf("redis URL: %w", withoutURL(err))
	}
	return target{mode: Standalone, address: parsed.Scheme + "://" + server.Addr, server: server}, nil
}

// withoutURL drops the URL that net/url puts into its errors.
func withoutURL(err error) error {
	var withURL *url.Error
	if errors.As(err, &withURL) {
		return withURL.Err
	}
	return err
}

// parseSet reads //[user:password@]h1[:port],h2…[/path][?query], which net/url takes for one host.
func parseSet(mode Mode, rest, port string) (target, error) {
	found := target{mode: mode}
	authority, ok := strings.CutPrefix(rest, "//")
	if !ok {
		return target{}, fmt.Errorf("redis URL: // belongs behind the scheme; use %s", forms)
	}
	authority, query, _ := strings.Cut(authority, "?")
	authority, path, _ := strings.Cut(authority, "/")
	if at := strings.LastIndex(authority, "@"); at >= 0 {
		if err := found.login(authority[:at]); err != nil {
			return target{}, err
		}
		authority = authority[at+1:]
	}
	err := errors.Join(found.servers(authority, port), found.parameters(query), found.path(path))
	found.address = "redis+" + string(mode) + "://" + strings.Join(found.hosts, ",")
	if found.master != "" {
		found.address += "/" + found.master
	}
	return found, err
}

func (t *target) login(userinfo string) (err error) {
	username, password, _ := strings.Cut(userinfo, ":")
	if t.username, err = url.PathUnescape(username); err == nil {
		t.password, err = url.PathUnescape(password)
	}
	if err != nil {
		return errors.New("redis URL: user or password is not percent-encoded as it should be")
	}
	return nil
}

func (t *target) servers(authority, port string) error {
	for host := range strings.SplitSeq(authority, ",") {
		if host == "" {
			return errors.New("redis URL: a host is empty")
		}
		if _, _, err := net.SplitHostPort(host); err != nil {
			host = net.JoinHostPort(strings.Trim(host, "[]"), port)
		}
		_, number, err := net.SplitHostPort(host)
		if n, numErr := strconv.Atoi(number); err != nil || numErr != nil || n < 1 || n > 65535 {
			return fmt.Errorf("redis URL: %q is not host:port", host)
		}
		t.hosts = append(t.hosts, host)
	}
	return nil
}

// path reads what follows the hosts: the master's name and the database for Sentinel, nothing for Cluster.
func (t *target) path(path string) (err error) {
	if t.mode == Cluster {
		if path != "" {
			return errors.New("redis URL: a cluster has neither a master's name nor a database number")
		}
		return nil
	}
	master, db, _ := strings.Cut(path, "/")
	if t.master = master; master == "" {
		return errors.New("redis URL: Sentinel needs the master's name: redis+sentinel://h1,h2,h3/<master>[/db]")
	}
	if db != "" {
		if t.db, err = strconv.Atoi(db); err != nil || t.db < 0 {
			return fmt.Errorf("redis URL: database %q is not a number", db)
		}
	}
	return nil
}

func (t *target) parameters(query string) (err error) {
	if t.query, err = url.ParseQuery(query); err != nil {
		return errors.New("redis URL: the parameters are not percent-encoded as they should be")
	}
	for name := range t.query {
		switch {
		case name == "tls" || name == "pool_size":
		case t.mode == Sentinel && (name == "sentinel_username" || name == "sentinel_password"):
		default:
			return fmt.Errorf("redis URL: unknown parameter %s", name)
		}
	}
	if _, err := t.poolSize(); err != nil {
		return err
	}
	if tls := t.query.Get("tls"); tls != "" && tls != "true" && tls != "false" {
		return fmt.Errorf("redis URL: tls=%s: true or false", tls)
	}
	return nil
}

func (t *target) poolSize() (int, error) {
	text := t.query.Get("pool_size")
	if text == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("redis URL: pool_size=%s: a number from 1", text)
	}
	return n, nil
}

func (t *target) tls() *tls.Config {
	if t.query.Get("tls") == "true" {
		return &tls.Config{MinVersion: tls.VersionTLS12}
	}
	return nil
}

var userinfoForm = regexp.MustCompile(`//[^/]*@`)

// Redact returns a store's URL without its user and password, for people and logs.
func Redact(url string) string {
	address, query, found := strings.Cut(userinfoForm.ReplaceAllString(url, "//***@"), "?")
	if found && strings.Contains(query, "password") {
		return address + "?***"
	}
	return strings.TrimSuffix(address+"?"+query, "?")
}
