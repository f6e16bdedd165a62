package redisconn

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/coatcheck/coatcheck/internal/lazyregexp"
)

// The modes of a Target: the kinds of Redis that a URL can name.
const (
	Embedded   = "embedded"
	Standalone = "standalone"
	Sentinel   = "sentinel"
	Cluster    = "cluster"
)

// Target is the Redis that a URL names.
type Target struct {
	Mode    string
	Address string // for people

	Server *redis.Options // standalone

	Hosts              []string // sentinel and cluster
	Master             string   // sentinel: the name of the set
	Username, Password string
	DB                 int
	Query              url.Values
	files              map[string]string // of tlsFiles, by the parameter

	Security    *tls.Config // nil = no TLS; see Secure
	Credentials func(context.Context) (username, password string, err error)
}

// LoggedIn reports whether the URL has a password.
func (t *Target) LoggedIn() bool {
	if t.Server != nil {
		return t.Server.Password != ""
	}
	return t.Password != ""
}

// Names are a URL's names of its servers: two URLs with one in common name the same Redis. The
// embedded store has none, since each is another.
func (t *Target) Names() (names []string) {
	if t.Server != nil {
		return []string{t.Server.Addr}
	}
	for _, host := range t.Hosts {
		names = append(names, strings.ToLower(host)+"/"+t.Master)
	}
	if t.Mode == Cluster {
		return t.Hosts
	}
	return names
}

const forms = "embedded: | redis://host:port | rediss://host:port | unix:///path | redis+sentinel://h1,h2,h3/<master>[/db] | " +
	"redis+cluster://h1,h2,h3"

// maxPoolSize is the most that pool_size may ask for.
const maxPoolSize = 10_000

// Parse reads a store's URL. Its errors quote nothing of it but parameters' names and a known
// form of scheme, since any other part of one that is written wrongly may be a password.
func Parse(text string) (Target, error) {
	scheme, rest, found := strings.Cut(text, ":")
	switch {
	case text == "":
		return Target{}, errors.New("redis URL: it is empty: give the Redis, as redis://host:port, or embedded: for a store in memory that " +
			"ends with the process")
	case scheme == "embedded" && found && rest == "":
		return Target{Mode: Embedded, Address: "embedded:"}, nil
	case !found || !schemeForm().MatchString(scheme):
		return Target{}, fmt.Errorf("redis URL: no scheme; use %s", forms)
	case strayAt(rest) && !strings.HasPrefix(text, "unix:///"): // a socket's name may have one
		return Target{}, errors.New("redis URL: an @ after the hosts: in a user, password or parameter / ? # @ are written as %2F " +
			"%3F %23 %40")
	}
	switch scheme {
	case "redis", "rediss", "unix":
		return parseStandalone(text)
	case "redis+sentinel":
		return parseSet(Sentinel, rest, "26379")
	case "redis+cluster":
		return parseSet(Cluster, rest, "6379")
	}
	return Target{}, fmt.Errorf("redis URL: unknown scheme %q; use %s", scheme, forms)
}

var schemeForm = lazyregexp.New(`^[a-z][a-z+]{0,20}$`)

// strayAt reports whether a URL has an @ after its hosts: most likely a password is cut in two by
// a character that is not encoded.
func strayAt(rest string) bool {
	rest = strings.TrimPrefix(rest, "//")
	end := strings.IndexAny(rest, "/?#")
	return end >= 0 && strings.Contains(rest[end:], "@")
}

// unsafe are go-redis's URL parameters that would undo what this package promises.
var unsafe = []string{"max_retries", "min_retry_backoff", "max_retry_backoff", "dial_timeout", "read_timeout", "write_timeout",
	"dialer_retries", "dialer_retry_timeout"}

func parseStandalone(text string) (Target, error) {
	parsed, err := url.Parse(text)
	if err != nil {
		return Target{}, errors.New("redis URL: host, port, user or password is not written as in a URL; use " + forms)
	}
	if err := checkStandalone(parsed); err != nil {
		return Target{}, err
	}
	query := parsed.Query()
	files := takeFiles(query)
	if len(files) > 0 {
		parsed.RawQuery = query.Encode()
		text = parsed.String()
	}
	server, err := redis.ParseURL(text)
	if err != nil {
		return Target{}, cmp.Or(wrongParameter(parsed), fmt.Errorf("redis URL: %w", err))
	}
	if server.DB < 0 {
		return Target{}, errors.New("redis URL: the database is not a number from 0")
	}
	return Target{Mode: Standalone, Address: parsed.Scheme + "://" + server.Addr, Server: server, files: files}, nil
}

// wrongParameter names the parameter whose value go-redis cannot read, and quotes nothing of it, as
// go-redis does: a value at the wrong place may be a password. nil = it can read all of them.
func wrongParameter(parsed *url.URL) error {
	for name, values := range parsed.Query() {
		alone := url.URL{Scheme: "redis", Host: "h", RawQuery: url.Values{name: values}.Encode()}
		if _, err := redis.ParseURL(alone.String()); err != nil {
			return fmt.Errorf("redis URL: the value of parameter %s is not of its kind", name)
		}
	}
	return nil
}

var databaseForm = lazyregexp.New(`^/?[0-9]{0,6}/?$`)

// checkStandalone refuses values that go-redis would accept silently, or quote in an error.
func checkStandalone(parsed *url.URL) error {
	if err := checkNames(parsed.Query()); err != nil {
		return err
	}
	for _, name := range unsafe {
		if parsed.Query().Has(name) {
			return fmt.Errorf("redis URL: parameter %s is not accepted: calls are never repeated, and end by the store's timeout", name)
		}
	}
	if _, err := poolSizeIn(parsed.Query()); err != nil {
		return err
	}
	switch {
	case parsed.Scheme == "unix" && parsed.Host != "":
		return errors.New("redis URL: a unix socket has no host: unix:///path, or unix://user:password@/path")
	case parsed.Scheme == "unix":
		return nil
	case parsed.Hostname() == "":
		return errors.New("redis URL: the host is empty")
	case strings.Contains(parsed.Hostname(), ":") && !strings.HasPrefix(parsed.Host, "["):
		return errors.New("redis URL: an IPv6 address needs brackets: redis://[::1]:6379")
	case parsed.Port() != "" && !portInRange(parsed.Port()):
		return errors.New("redis URL: the port is not a number from 1 to 65535")
	case !databaseForm().MatchString(parsed.Path):
		return errors.New("redis URL: the database is not a number from 0")
	}
	return nil
}

var parameterForm = lazyregexp.New(`^[a-z_]{1,30}$`)

// checkNames refuses unknown parameters. A known name may be quoted in an error.
func checkNames(query url.Values) error {
	for name := range query {
		if !parameterForm().MatchString(name) {
			return errors.New("redis URL: unknown parameter")
		}
	}
	return nil
}

func portInRange(text string) bool {
	n, err := strconv.ParseUint(text, 10, 16)
	return err == nil && n > 0
}

// parseSet reads //[user:password@]h1[:port],h2…[/path][?query], which net/url takes for one host.
func parseSet(mode string, rest, port string) (Target, error) {
	found := Target{Mode: mode}
	authority, ok := strings.CutPrefix(rest, "//")
	if !ok {
		return Target{}, fmt.Errorf("redis URL: // belongs after the scheme; use %s", forms)
	}
	authority, query, _ := strings.Cut(authority, "?")
	authority, path, _ := strings.Cut(authority, "/")
	if at := strings.LastIndex(authority, "@"); at >= 0 {
		if err := found.login(authority[:at]); err != nil {
			return Target{}, err
		}
		authority = authority[at+1:]
	}
	err := errors.Join(found.servers(authority, port), found.parameters(query), found.path(path))
	found.Address = "redis+" + mode + "://" + strings.Join(found.Hosts, ",")
	if found.Master != "" {
		found.Address += "/" + found.Master
	}
	return found, err
}

func (t *Target) login(userinfo string) (err error) {
	username, password, _ := strings.Cut(userinfo, ":")
	if t.Username, err = url.PathUnescape(username); err == nil {
		t.Password, err = url.PathUnescape(password)
	}
	if err != nil {
		return errors.New("redis URL: user or password is not percent-encoded as it should be")
	}
	return nil
}

// hostForm is a name, an IPv4 or an IPv6 address, perhaps with a zone.
var hostForm = lazyregexp.New(`^[A-Za-z0-9._:%-]+$`)

func (t *Target) servers(authority, port string) error {
	for host := range strings.SplitSeq(authority, ",") {
		if _, _, err := net.SplitHostPort(host); err != nil {
			host = net.JoinHostPort(strings.Trim(host, "[]"), port)
		}
		name, number, err := net.SplitHostPort(host)
		switch {
		case name == "":
			return errors.New("redis URL: a host is empty")
		case err != nil || !portInRange(number) || !hostForm().MatchString(name):
			return errors.New("redis URL: a host is not written as host:port with a port from 1 to 65535")
		}
		t.Hosts = append(t.Hosts, host)
	}
	return nil
}

// path reads what follows the hosts: for Sentinel the master's name and database, else nothing.
func (t *Target) path(path string) (err error) {
	if t.Mode == Cluster {
		if path != "" {
			return errors.New("redis URL: a cluster has neither a master's name nor a database number")
		}
		return nil
	}
	master, db, _ := strings.Cut(path, "/")
	if t.Master = master; master == "" {
		return errors.New("redis URL: Sentinel needs the master's name: redis+sentinel://h1,h2,h3/<master>[/db]")
	}
	if db != "" {
		if t.DB, err = strconv.Atoi(db); err != nil || !databaseForm().MatchString(db) {
			return errors.New("redis URL: the database is not a number from 0")
		}
	}
	return nil
}

func (t *Target) parameters(query string) (err error) {
	if t.Query, err = url.ParseQuery(query); err != nil {
		return errors.New("redis URL: the parameters are not percent-encoded as they should be")
	}
	if err := checkNames(t.Query); err != nil {
		return err
	}
	t.files = takeFiles(t.Query)
	for name := range t.Query {
		switch {
		case name == "tls" || name == "pool_size":
		case t.Mode == Sentinel && (name == "sentinel_username" || name == "sentinel_password"):
		default:
			return fmt.Errorf("redis URL: unknown parameter %s", name)
		}
	}
	if _, err := poolSizeIn(t.Query); err != nil {
		return err
	}
	if tls := t.Query.Get("tls"); tls != "" && tls != "true" && tls != "false" {
		return errors.New("redis URL: tls: true or false")
	}
	return nil
}

func (t *Target) poolSize() int {
	size, _ := poolSizeIn(t.Query) // it was checked
	return cmp.Or(size, poolSize)
}

func poolSizeIn(query url.Values) (int, error) {
	text := query.Get("pool_size")
	if text == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > maxPoolSize {
		return 0, fmt.Errorf("redis URL: pool_size: a number from 1 to %d", maxPoolSize)
	}
	return n, nil
}

// tls is the TLS settings of the URL alone.
func (t *Target) tls() *tls.Config {
	if t.Server != nil {
		return t.Server.TLSConfig
	}
	if t.Query.Get("tls") == "true" {
		return &tls.Config{MinVersion: tls.VersionTLS12}
	}
	return nil
}

var userinfoForm = lazyregexp.New(`//[^/?]*@`)

// Redact returns a store's URL without its user and password, for people and logs. Of one that is
// written wrongly it shows at most the scheme, since it is not known which part is the password.
func Redact(url string) string {
	if _, err := Parse(url); err != nil && url != "" {
		if scheme, _, found := strings.Cut(url, ":"); found && schemeForm().MatchString(scheme) {
			return scheme + ":***"
		}
		return "***"
	}
	address, query, found := strings.Cut(userinfoForm().ReplaceAllString(url, "//***@"), "?")
	if found && strings.Contains(query, "password") {
		return address + "?***"
	}
	return strings.TrimSuffix(address+"?"+query, "?")
}
