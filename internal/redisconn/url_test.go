package redisconn

import (
	"crypto/tls"
	"strings"
	"testing"
)

func TestURLNamesAServer(t *testing.T) {
	for url, want := range map[string]struct {
		address, network, addr, user, password string
		db, pool                               int
		tls                                    bool
	}{
		"redis://h":                            {address: "redis://h:6379", addr: "h:6379"},
		"redis://h:7000":                       {address: "redis://h:7000", addr: "h:7000"},
		"redis://h:7000/":                      {address: "redis://h:7000", addr: "h:7000"},
		"redis://h/3":                          {address: "redis://h:6379", addr: "h:6379", db: 3},
		"redis://10.0.0.1:1":                   {address: "redis://10.0.0.1:1", addr: "10.0.0.1:1"},
		"redis://[::1]":                        {address: "redis://[::1]:6379", addr: "[::1]:6379"},
		"redis://[::1]:65535/15":               {address: "redis://[::1]:65535", addr: "[::1]:65535", db: 15},
		"redis://:secret@h":                    {address: "redis://h:6379", addr: "h:6379", password: "secret"},
		"redis://ann:secret@h:7000/2":          {address: "redis://h:7000", addr: "h:7000", user: "ann", password: "secret", db: 2},
		"redis://a%40b:p%2Fa%3Fs%23s%40w%3A@":  {address: ""}, // no host: below
		"redis://a%40b:p%2Fa%3Fs%23s%40w%3A@h": {address: "redis://h:6379", addr: "h:6379", user: "a@b", password: "p/a?s#s@w:"},
		"redis://ann:p@ss:word@h":              {address: "redis://h:6379", addr: "h:6379", user: "ann", password: "p@ss:word"},
		"redis://h?pool_size=7":                {address: "redis://h:6379", addr: "h:6379", pool: 7},
		"rediss://h":                           {address: "rediss://h:6379", addr: "h:6379", tls: true},
		"rediss://ann:secret@h:6380/1":         {address: "rediss://h:6380", addr: "h:6380", user: "ann", password: "secret", db: 1, tls: true},
		"unix:///run/redis.sock":               {address: "unix:///run/redis.sock", network: "unix", addr: "/run/redis.sock"},
		"unix:///run/r@dis.sock":               {address: "unix:///run/r@dis.sock", network: "unix", addr: "/run/r@dis.sock"},
		"unix://ann:secret@/run/redis.sock?db=4": {
			address: "unix:///run/redis.sock", network: "unix", addr: "/run/redis.sock", user: "ann", password: "secret", db: 4,
		},
	} {
		t.Run(url, func(t *testing.T) {
			target, err := Parse(url)
			if want.address == "" {
				if err == nil {
					t.Errorf("got %+v, want an error", target.Server)
				}
				return
			}
			if err != nil {
				t.Fatalf("Parse: %v", err)
			}
			server := target.Server
			if target.Mode != Standalone || target.Address != want.address || server.Addr != want.addr || server.Username != want.user ||
				server.Password != want.password || server.DB != want.db || server.PoolSize != want.pool {
				t.Errorf("got %s %s with %+v, want %+v", target.Mode, target.Address, server, want)
			}
			if want.network != "" && server.Network != want.network {
				t.Errorf("network %s, want %s", server.Network, want.network)
			}
			if (server.TLSConfig != nil) != want.tls {
				t.Errorf("TLS is %v, want %v", server.TLSConfig != nil, want.tls)
			}
			if want.tls && (server.TLSConfig.InsecureSkipVerify || server.TLSConfig.MinVersion < tls.VersionTLS12 || server.TLSConfig.ServerName != "h") {
				t.Errorf("TLS by %+v", server.TLSConfig)
			}
		})
	}
}

func TestURLNamesASentinelSetOrACluster(t *testing.T) {
	for url, want := range map[string]struct {
		mode                             string
		address, master, user, password  string
		hosts                            string
		db, pool                         int
		tls                              bool
		sentinelUsername, sentinelSecret string
	}{
		"redis+sentinel://h1/main": {mode: Sentinel, address: "redis+sentinel://h1:26379/main", master: "main", hosts: "h1:26379"},
		"redis+sentinel://h1,h2:7000,h3/main/3": {
			mode: Sentinel, address: "redis+sentinel://h1:26379,h2:7000,h3:26379/main", master: "main", hosts: "h1:26379 h2:7000 h3:26379", db: 3,
		},
		"redis+sentinel://[::1],[fe80::1%25eth0]:7000,::2/main": {
			mode: Sentinel, address: "redis+sentinel://[::1]:26379,[fe80::1%25eth0]:7000,[::2]:26379/main", master: "main",
			hosts: "[::1]:26379 [fe80::1%25eth0]:7000 [::2]:26379",
		},
		"redis+sentinel://ann:p%2Fs%3F%40@h1/main?tls=true&pool_size=9&sentinel_username=bob&sentinel_password=s%26%40": {
			mode: Sentinel, address: "redis+sentinel://h1:26379/main", master: "main", hosts: "h1:26379", user: "ann", password: "p/s?@",
			tls: true, pool: 9, sentinelUsername: "bob", sentinelSecret: "s&@",
		},
		"redis+sentinel://:secret@h1/main/": {mode: Sentinel, address: "redis+sentinel://h1:26379/main", master: "main", hosts: "h1:26379", password: "secret"},
		"redis+cluster://h1":                {mode: Cluster, address: "redis+cluster://h1:6379", hosts: "h1:6379"},
		"redis+cluster://ann:se@cret@h1:7000,h2?tls=false": {
			mode: Cluster, address: "redis+cluster://h1:7000,h2:6379", hosts: "h1:7000 h2:6379", user: "ann", password: "se@cret",
		},
		"redis+cluster://h1?tls=true&pool_size=1": {mode: Cluster, address: "redis+cluster://h1:6379", hosts: "h1:6379", tls: true, pool: 1},
	} {
		t.Run(url, func(t *testing.T) {
			target, err := Parse(url)
			if err != nil {
				t.Fatalf("Parse: %v", err)
			}
			pool, _ := poolSizeIn(target.Query)
			if target.Mode != want.mode || target.Address != want.address || target.Master != want.master || target.Username != want.user ||
				target.Password != want.password || strings.Join(target.Hosts, " ") != want.hosts || target.DB != want.db || pool != want.pool ||
				(target.tls() != nil) != want.tls || target.Query.Get("sentinel_username") != want.sentinelUsername ||
				target.Query.Get("sentinel_password") != want.sentinelSecret {
				t.Errorf("got %+v, want %+v", target, want)
			}
		})
	}
}

func TestURLOfTheEmbeddedStore(t *testing.T) {
	if target, err := Parse("embedded:"); err != nil || target.Mode != Embedded || target.Address != "embedded:" {
		t.Errorf("got %+v, %v", target, err)
	}
	if target, err := Parse(""); err == nil { // as of a variable that is not set
		t.Errorf("an empty URL: got %+v, want an error", target)
	}
}

// password is in every wrong URL that has one, and in no error.
const password = "hunter2-hunter2"

var wrongURLs = []struct{ name, url, says string }{
	{"no scheme", "localhost:6379", "unknown scheme"}, // localhost could be one
	{"no scheme, a user", "ann:" + password + "@h:6379", "unknown scheme"},
	{"no scheme, a password only", ":" + password + "@h:6379", "no scheme"},
	{"no scheme, a password as user", password + "@h:6379", "no scheme"},
	{"no colon", password, "no scheme"},
	{"unknown scheme", "http://ann:" + password + "@h", `unknown scheme "http"`},
	{"scheme in capitals", "Redis://ann:" + password + "@h", "no scheme"},
	{"embedded with something", "embedded:" + password, "unknown scheme"},
	{"embedded with slashes", "embedded://", "unknown scheme"},

	{"server: no host", "redis://", "host is empty"},
	{"server: no host, a port", "redis://ann:" + password + "@:6379", "host is empty"},
	{"server: no slashes", "redis:h:6379", "host is empty"},
	{"server: port is a word", "redis://ann:" + password + "@h:six", "not written as in a URL"},
	{"server: port 0", "redis://ann:" + password + "@h:0", "port"},
	{"server: port 65536", "redis://ann:" + password + "@h:65536", "port"},
	{"server: forgotten host", "redis://ann:" + password, "not written as in a URL"},
	{"server: slash in the password", "redis://ann:" + password + "/x@h", "%2F"},
	{"server: slash in the password after digits", "redis://ann:12/" + password + "@h", "%2F"},
	{"server: question mark in the password", "redis://ann:12?" + password + "@h", "%3F"},
	{"server: hash in the password", "redis://ann:12#" + password + "@h", "%23"},
	{"server: @ and hash in the password", "redis://ann:12@" + password + "#x@h", "%23"},
	{"server: percent in the password", "redis://ann:%zz" + password + "@h", "not written as in a URL"},
	{"server: space in the password", "redis://ann: " + password + "@h", "not written as in a URL"},
	{"server: IPv6 without brackets", "redis://ann:" + password + "@::1:6379", "brackets"},
	{"server: IPv6 without brackets or port", "redis://ann:" + password + "@::1", "brackets"},
	{"server: database is a word", "redis://ann:" + password + "@h/one", "database"},
	{"server: database below 0", "redis://ann:" + password + "@h/-1", "database"},
	{"server: two databases", "redis://ann:" + password + "@h/1/2", "database"},
	{"server: database of a socket is a word", "unix://ann:" + password + "@/s?db=x", "parameter db"},
	{"server: database of a socket below 0", "unix://ann:" + password + "@/s?db=-1", "database"},
	{"server: database in a parameter is a password", "redis://h?db=" + password, "parameter db"},
	{"server: protocol is a password", "redis://h?protocol=" + password, "parameter protocol"},
	{"server: pool_timeout is a password", "redis://h?pool_timeout=" + password, "parameter pool_timeout"},
	{"server: pool_fifo is a password", "rediss://h?db=1&pool_fifo=" + password, "parameter pool_fifo"},
	{"server: min_idle_conns is a password", "unix:///s?min_idle_conns=" + password, "parameter min_idle_conns"},
	{"server: unknown parameter", "redis://ann:" + password + "@h?colour=red", "colour"},
	{"server: pool_size is a word", "redis://ann:" + password + "@h?pool_size=many", "pool_size"},
	{"server: pool_size 0", "redis://ann:" + password + "@h?pool_size=0", "pool_size"},
	{"server: pool_size below 0", "redis://ann:" + password + "@h?pool_size=-1", "pool_size"},
	{"server: pool_size too large", "redis://ann:" + password + "@h?pool_size=99999999999", "pool_size"},
	{"server: max_retries", "redis://ann:" + password + "@h?max_retries=3", "max_retries"},
	{"server: max_retries off", "redis://ann:" + password + "@h?max_retries=-1", "max_retries"},
	{"server: read_timeout", "redis://ann:" + password + "@h?read_timeout=1m", "read_timeout"},
	{"server: dial_timeout", "rediss://ann:" + password + "@h?dial_timeout=1m", "dial_timeout"},
	{"server: dialer_retries", "unix://ann:" + password + "@/s?dialer_retries=5", "dialer_retries"},
	{"socket: no path", "unix://ann:" + password + "@", "socket"},
	{"socket: a host", "unix://ann:" + password + "@h/run/s", "socket"},
	{"socket: slash in the password", "unix://ann:12/" + password + "@/s", "%2F"},
	{"socket: @ and slash in the password", "unix://ann:12@/" + password + "@/s", "%2F"},

	{"sentinel: no master", "redis+sentinel://ann:" + password + "@h1,h2", "master's name"},
	{"sentinel: empty master", "redis+sentinel://ann:" + password + "@h1/", "master's name"},
	{"sentinel: empty master, a database", "redis+sentinel://ann:" + password + "@h1//3", "master's name"},
	{"sentinel: no slashes", "redis+sentinel:h1/main", "//"},
	{"sentinel: no host", "redis+sentinel://ann:" + password + "@/main", "host is empty"},
	{"sentinel: host missing in the list", "redis+sentinel://ann:" + password + "@h1,,h3/main", "host is empty"},
	{"sentinel: a port without host", "redis+sentinel://ann:" + password + "@h1,:26379/main", "host is empty"},
	{"sentinel: port is a word", "redis+sentinel://ann:" + password + "@h1:six/main", "host:port"},
	{"sentinel: port 0", "redis+sentinel://ann:" + password + "@h1:0/main", "host:port"},
	{"sentinel: port 65536", "redis+sentinel://ann:" + password + "@h1:65536/main", "host:port"},
	{"sentinel: signed port", "redis+sentinel://ann:" + password + "@h1:+1/main", "host:port"},
	{"sentinel: empty port", "redis+sentinel://ann:" + password + "@h1:/main", "host:port"},
	{"sentinel: database is a word", "redis+sentinel://ann:" + password + "@h1/main/one", "database"},
	{"sentinel: database below 0", "redis+sentinel://ann:" + password + "@h1/main/-1", "database"},
	{"sentinel: forgotten host", "redis+sentinel://ann:" + password + "/main", "host:port"},
	{"sentinel: slash in the password", "redis+sentinel://ann:12/" + password + "@h1/main", "%2F"},
	{"sentinel: percent in the password", "redis+sentinel://ann:%zz" + password + "@h1/main", "percent-encoded"},
	{"sentinel: unknown parameter", "redis+sentinel://ann:" + password + "@h1/main?max_retries=3", "max_retries"},
	{"sentinel: misspelt parameter", "redis+sentinel://h1/main?sentinel_pasword=" + password, "sentinel_pasword"},
	{"sentinel: parameters badly encoded", "redis+sentinel://h1/main?sentinel_password=%zz" + password, "percent-encoded"},
	{"sentinel: tls is a word", "redis+sentinel://ann:" + password + "@h1/main?tls=yes", "tls"},
	{"sentinel: pool_size 0", "redis+sentinel://ann:" + password + "@h1/main?pool_size=0", "pool_size"},

	{"cluster: no slashes", "redis+cluster:h1", "//"},
	{"cluster: no host", "redis+cluster://ann:" + password + "@", "host is empty"},
	{"cluster: a master", "redis+cluster://ann:" + password + "@h1/main", "cluster"},
	{"cluster: a database", "redis+cluster://ann:" + password + "@h1/0", "cluster"},
	{"cluster: forgotten host", "redis+cluster://ann:" + password, "host:port"},
	{"cluster: slash in the password", "redis+cluster://ann:" + password + "/x@h1", "%2F"},
	{"cluster: space in a host", "redis+cluster://ann:" + password + "@h 1", "host:port"},
	{"cluster: sentinel's parameter", "redis+cluster://h1?sentinel_password=" + password, "sentinel_password"},
	{"cluster: pool_size too large", "redis+cluster://ann:" + password + "@h1?pool_size=99999999999", "pool_size"},
}

func TestWrongURLIsRefusedWithoutItsPassword(t *testing.T) {
	for _, row := range wrongURLs {
		t.Run(row.name, func(t *testing.T) {
			_, err := Parse(row.url)
			if err == nil {
				t.Fatal("it was taken")
			}
			if !strings.Contains(err.Error(), row.says) {
				t.Errorf("got the error %q, want one that says %q", err, row.says)
			}
			if strings.Contains(err.Error(), password) || strings.Contains(Redact(row.url), password) {
				t.Errorf("the password is in the error %q or in %q", err, Redact(row.url))
			}
		})
	}
}

func TestWrongSetTellsAllItsFaults(t *testing.T) {
	_, err := Parse("redis+sentinel://h1:0/?colour=red")
	for _, says := range []string{"host:port", "master's name", "colour"} {
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("got the error %v, want one that says %q", err, says)
		}
	}
}

func TestRedactShowsEverythingButSecrets(t *testing.T) {
	for url, want := range map[string]string{
		"":                                   "",
		"embedded:":                          "embedded:",
		"redis://h:6379/3":                   "redis://h:6379/3",
		"redis://h?pool_size=3":              "redis://h?pool_size=3",
		"redis://ann:hunter2@h:6379/3":       "redis://***@h:6379/3",
		"redis://ann:hun@ter2@h:6379":        "redis://***@h:6379",
		"rediss://:hunter2@h?pool_size=3":    "rediss://***@h?pool_size=3",
		"unix://ann:hunter2@/run/s.sock":     "unix://***@/run/s.sock",
		"unix:///run/r@dis.sock":             "unix:///run/r@dis.sock",
		"redis+cluster://ann:hunter2@h1,h2":  "redis+cluster://***@h1,h2",
		"redis+sentinel://hunter2@h1,h2/m/3": "redis+sentinel://***@h1,h2/m/3",
		"redis+sentinel://h1/m?sentinel_username=bob&sentinel_password=hunter2": "redis+sentinel://h1/m?***",
		"redis://ann:hunter2":        "redis:***",
		"redis://ann:hun/ter2@h":     "redis:***",
		"http://ann:hunter2@h":       "http:***",
		"ann:hunter2@h":              "ann:***",
		"hunter2@h:6379":             "***",
		"hunter2":                    "***",
		"redis://ann:hunter2@h:port": "redis:***",
	} {
		if got := Redact(url); got != want {
			t.Errorf("%s is shown as %s, want %s", url, got, want)
		}
	}
}

// FuzzParse looks for a URL that panics, or whose password comes out: in an error, in what is
// shown to people, or in the store's address.
func FuzzParse(f *testing.F) {
	for _, scheme := range []string{"redis", "rediss", "unix", "redis+sentinel", "redis+cluster", "http", ""} {
		for _, around := range []string{"", "/", "?", "#", "12/", "12?", "%zz", "@", ":", " ", "[", "12?tls=", "12/3?", "\x00"} {
			f.Add(scheme, "ann", around, "", "h:6379/main?pool_size=3")
			f.Add(scheme, "", "", around, "[::1]:0,h2/0")
		}
	}
	f.Fuzz(func(t *testing.T, scheme, user, before, after, rest string) {
		_, _ = Parse(rest)
		if scheme == "unix" && strings.ContainsAny(user, "/?#") {
			return // what follows is a path and no password
		}
		url := scheme + "://" + user + ":" + before + password + after + "@" + rest
		target, err := Parse(url)
		shown := Redact(url) + target.Address
		if err != nil {
			shown += err.Error()
		}
		if strings.Contains(shown, password) {
			t.Errorf("the password of %q comes out in %q", url, shown)
		}
	})
}
