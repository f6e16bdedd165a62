//go:build check

package gateway

import (
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/logtest"
	"github.com/coatcheck/coatcheck/internal/testing/proctest"
)

// endingEvent is what goes wrong with a request.
type endingEvent struct {
	name    string // which X-Event tells the handler
	method  string // POST if it is empty
	body    string
	noBody  bool
	prepare func(b *behind, key string) (after func())
}

var endingEvents = map[string]endingEvent{
	"no answer in time":                            {name: "slow"},
	"the time is over":                             {name: "slow"},
	"the time is over in a request without a body": {name: "slow", noBody: true},
	"the time of an asynchronous request is over":  {name: "slow"},
	"the handler takes longer than the limit":      {name: "late"},
	"the service dies":                             {name: "killed"},
	"the service dies and stays down":              {name: "gone", prepare: (*behind).startAgain},
	// HAProxy repeats only what it has whole when it connects
	"the service dies in a request without a body":                {name: "killed", noBody: true},
	"the service dies in a request without a body and stays down": {name: "gone", noBody: true, prepare: (*behind).startAgain},
	"the service dies in its answer":                              {name: "part"},
	"the service dies in its answer and stays down":               {name: "part", prepare: (*behind).startAgain},
	"a reload":                              {name: "slow", prepare: (*behind).reloadWithin},
	"the service dies on a kept connection": {name: "killed", prepare: (*behind).warm},
	"the service dies on a kept connection in a request without a body": {name: "killed", prepare: (*behind).warm, noBody: true},
	"the service dies in a PUT":                                         {name: "killed", method: http.MethodPut},
	"the service begins before it reads":                                {name: "unread"},
	"the service itself answers 503":                                    {name: "busy"},
	"the service itself answers 429":                                    {name: "refused"},
	"an exception":                                                      {name: "thrown"},
	"an exception in its answer":                                        {name: "thrown late"},
	"a fatal error":                                                     {name: "memory"},
	"a fatal error after a flush":                                       {name: "after"},
	"the body is too large":                                             {name: "large", body: `"` + strings.Repeat("x", 2<<10) + `"`},
	"the service is down":                                               {name: "down", prepare: (*behind).stop},
	"the limit refuses":                                                 {name: "limited", prepare: (*behind).spend},
	"the queue takes too long":                                          {name: "queued", prepare: (*behind).occupy},
}

// warm leaves a kept connection between the server and the service.
func (b *behind) warm(key string) func() {
	b.app.web.SetKeepAlivesEnabled(true)
	for n := range 3 {
		got := b.door.do("POST", "/payments", "", fmt.Sprintf("Idempotency-Key: %s-%d", key, n))
		b.expect(b.about+": a request that leaves a connection", got, "201")
	}
	return func() { b.app.web.SetKeepAlivesEnabled(false) }
}

// stop stops the service until the first request has its answer.
func (b *behind) stop(string) func() {
	b.down()
	return b.up
}

// startAgain starts a service that has stopped when the first request has its answer.
func (b *behind) startAgain(string) func() { return b.up }

// reloadWithin has the server reload while the handler runs, which may end when that has begun.
func (b *behind) reloadWithin(key string) func() {
	done := make(chan struct{})
	go func() {
		defer close(done)
		expect.Eventually(b.t, "the handler has begun", func() bool { return b.book.count("begun", key) == 1 })
		b.reload()
		b.book.open(key)
	}()
	return func() { <-done }
}

// spend has a request take all that the limit allows.
func (b *behind) spend(key string) func() {
	got := b.door.do("POST", "/payments", "", "Idempotency-Key: "+key+"-spent", "X-Event: limited")
	b.expect(b.about+": a request within the limit", got, "201")
	return func() {}
}

// occupy has a request take the only connection to the service until another has its answer.
func (b *behind) occupy(key string) func() {
	other := key + "-other"
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		got := b.door.do("POST", "/payments", "", "Idempotency-Key: "+other, "X-Event: slow")
		b.expect(b.about+": the request before", got, "201")
	}()
	expect.Eventually(b.t, "the service has a request", func() bool { return b.book.count("begun", other) == 1 })
	return func() {
		b.book.open(other)
		<-ended
	}
}

// app is a service on a port of its own, which can be stopped.
type app struct {
	t    *testing.T
	book *book
	port int

	mu       sync.Mutex
	web      *http.Server
	listener net.Listener
}

func newApp(t *testing.T, b *book) *app {
	t.Helper()
	a := &app{t: t, book: b, port: freePort(t)}
	a.start()
	t.Cleanup(a.stop)
	return a
}

func (a *app) address() string { return "127.0.0.1:" + strconv.Itoa(a.port) }

func (a *app) start() {
	var listener net.Listener
	// a program that is just being started has a copy of the closed socket
	expect.Eventually(a.t, "the service listens", func() bool {
		var err error
		listener, err = net.Listen("tcp", a.address())
		return err == nil
	})
	web := &http.Server{Handler: a, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)}
	web.SetKeepAlivesEnabled(false) // each request has a connection of its own, but after warm
	a.mu.Lock()
	a.web, a.listener = web, listener
	a.mu.Unlock()
	go func() { _ = web.Serve(listener) }()
}

// stop closes the port and all connections.
func (a *app) stop() {
	a.mu.Lock()
	defer a.mu.Unlock()
	_ = a.listener.Close() // which the server may not know yet
	_ = a.web.Close()
}

func (a *app) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key := r.Header.Get("Idempotency-Key")
	if r.Header.Get("X-Event") != "unread" {
		_, _ = io.Copy(io.Discard, r.Body)
	}
	a.book.note("begun", key)
	switch r.Header.Get("X-Event") {
	case "slow", "unread":
		a.book.wait(key, a.t.Context().Done())
	case "killed":
		panic(http.ErrAbortHandler) // closes the connection
	case "gone":
		a.stop()
		panic(http.ErrAbortHandler)
	case "chance":
		if rand.N(3) == 0 {
			panic(http.ErrAbortHandler)
		}
	case "part":
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, "half of it")
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
	a.book.note("ended", key)
	status, given := map[string]int{"busy": http.StatusServiceUnavailable, "refused": http.StatusTooManyRequests}[r.Header.Get("X-Event")]
	if !given {
		status = http.StatusCreated
	}
	w.WriteHeader(status)
}

func freePort(t *testing.T) int {
	t.Helper()
	port, err := proctest.Reserve()
	expect.NoError(t, "reserve a port", err)
	t.Cleanup(port.Release)
	return port.Number()
}

// lines are the page's lines of configuration, by the language of their block.
type lines map[string]string

var endingBlock = regexp.MustCompile("(?ms)^```(nginx|haproxy|apache|caddy|vcl|yaml)\n(.*?)^```$")

func linesOf(page string) lines {
	_, section, _ := strings.Cut(page, "## When a proxy or a time limit answers\n")
	section, _, _ = strings.Cut(section, "\n## ")
	found := lines{}
	for _, block := range endingBlock.FindAllStringSubmatch(section, -1) {
		found[block[1]] = block[2]
	}
	return found
}

// field returns the route's field of the page.
func (l lines) field() string {
	if field := regexp.MustCompile(`doubts: \[.*?\]`).FindString(l["yaml"]); field != "" {
		return ", " + field
	}
	return ""
}

// split returns the part of a block before a comment that says where the rest belongs, and that.
func (l lines) split(language, where string) (before, after string) {
	before, after, _ = strings.Cut(l[language], where)
	return before, after
}

// endingServers start the servers of the page's table.
var endingServers = map[string]func(b *behind, l lines) (url string){
	"nginx": func(b *behind, l lines) string {
		return b.nginx(l, "", "proxy_pass http://"+b.app.address()+";")
	},
	"nginx with `limit_req`": func(b *behind, l lines) string {
		return b.nginx(l, "", "limit_req zone=each; proxy_pass http://"+b.app.address()+";")
	},
	"nginx with two servers":               func(b *behind, l lines) string { return b.nginxOfTwo(l, "") },
	"nginx with `proxy_next_upstream off`": func(b *behind, l lines) string { return b.nginxOfTwo(l, "proxy_next_upstream off;") },
	"nginx and php-fpm":                    (*behind).nginxAndPHP,
	"HAProxy":                              func(b *behind, l lines) string { return b.haproxy(l, "timeout server 2s\n    retries 0", "") },
	"HAProxy with `maxconn`":               func(b *behind, l lines) string { return b.haproxy(l, "timeout queue 300ms", " maxconn 1") },
	// the gateway's requests have connections of their own, so that HAProxy answers
	"HAProxy with `retry-on`": func(b *behind, l lines) string {
		b.set = func(c *Config) { c.UpstreamIdle = time.Nanosecond }
		return b.haproxy(l, "retry-on all-retryable-errors", "")
	},
	"Apache":                        func(b *behind, l lines) string { return b.apache(l, "") },
	"Apache with `ping`":            func(b *behind, l lines) string { return b.apache(l, " ping=1") },
	"Apache with CGI":               (*behind).cgi,
	"Varnish":                       (*behind).varnish,
	"Caddy":                         (*behind).caddy,
	"Go with `http.TimeoutHandler`": (*behind).timeoutHandler,
	// Debian's package is for Debian's interpreter
	"FastAPI with `wait_for`": program("/usr/bin/python3", "limits.py", "504"),
	"gunicorn": func(b *behind, _ lines) string {
		return b.reloads("Handling signal: hup", "gunicorn", "--bind", "ADDRESS", "killed")
	},
	"gunicorn with `--timeout`": program("gunicorn", "--timeout", "2", "--bind", "ADDRESS", "killed"),
	"unicorn": func(b *behind, _ lines) string {
		return b.reloads("done reloading", "unicorn", "--env", "production", "--listen", "ADDRESS", "--config-file", b.file(""), "killed.ru")
	},
	"unicorn with `timeout`": func(b *behind, _ lines) string {
		return b.launch(freePort(b.t), "unicorn", "--env", "production", "--listen", "ADDRESS", "--config-file", b.file("timeout 3"), "killed.ru")
	},
	"waitress": func(b *behind, _ lines) string {
		return b.restarts(freePort(b.t), "waitress-serve", "--listen", "ADDRESS", "killed:application")
	},
	"Tomcat": (*behind).tomcat,
	"uWSGI": program("uwsgi", "--http-socket", "ADDRESS", "--plugin", "python3", "--wsgi-file", "killed.py", "--master", "--need-app",
		"--disable-logging"),
	"`php -S`":                          program("php", "-d", "display_errors=0", "-S", "ADDRESS", "pay.php"),
	"puma with Rack::Timeout":           program("puma", "--quiet", "--bind", "tcp://ADDRESS", "rack_timeout.ru"),
	"Express with connect-timeout":      program("node", "limits.mjs", "express"),
	"Fastify with `handlerTimeout`":     program("node", "limits.mjs", "fastify", "handlerTimeout"),
	"Fastify with `connectionTimeout`":  program("node", "limits.mjs", "fastify", "connectionTimeout"),
	"Gin with gin-contrib/timeout":      func(b *behind, _ lines) string { return b.limited("gin") },
	"Fiber with its middleware timeout": func(b *behind, _ lines) string { return b.limited("fiber") },
	"Koa with koa-timeout-v2":           program("node", "limits.mjs", "koa"),
	"hapi with `timeout.server`":        program("node", "limits.mjs", "hapi"),
	"NestJS with `timeout()`":           program("node", "limits.mjs", "nest"),
}

func program(words ...string) func(*behind, lines) string {
	return func(b *behind, _ lines) string { return b.launch(freePort(b.t), words...) }
}

// newBehind starts a server of the page, and a gateway before it.
func newBehind(t *testing.T, server string, l lines) *behind {
	t.Helper()
	begin := endingServers[server]
	if begin == nil {
		t.Fatalf("the page has a server that this test does not know: %s", server)
	}
	b := &behind{t: t, about: server, book: newBook(t), ready: func() {}, set: func(*Config) {}}
	b.app = newApp(t, b.book)
	b.down, b.up = b.app.stop, b.app.start
	url := begin(b, l)
	b.door = start(t, url, strings.Replace(endingRoutes, "FIELDS", l.field(), 1), b.set)
	return b
}

// launch starts a program that listens on a port, and waits until it does. In its words ADDRESS is
// where.
func (b *behind) launch(port int, words ...string) (url string) {
	b.t.Helper()
	url, _ = b.run(port, words...)
	return url
}

// restarts starts a program that an event may end: the next event has another one.
func (b *behind) restarts(port int, words ...string) (url string) {
	b.t.Helper()
	url, running := b.run(port, words...)
	b.up = func() { <-running.Done() }
	b.ready = func() {
		if !running.Running() {
			_, running = b.run(port, words...)
		}
	}
	return url
}

// reloads starts a program that reloads at SIGHUP, and says so.
func (b *behind) reloads(says string, words ...string) (url string) {
	b.t.Helper()
	url, running := b.run(freePort(b.t), words...)
	b.reload = func() {
		running.Signal(syscall.SIGHUP)
		expect.Eventually(b.t, b.about+" reloads", func() bool { return strings.Contains(running.out.String(), says) })
	}
	return url
}

// running is a program with what it says.
type running struct {
	*proctest.Process

	out logtest.Text
}

// end ends a program, and its own processes as well.
func (r *running) end() {
	if r.Running() {
		_ = syscall.Kill(-r.Pid(), syscall.SIGKILL)
	}
	<-r.Done()
}

// run starts a program that can be ended before the test.
func (b *behind) run(port int, words ...string) (url string, r *running) {
	b.t.Helper()
	r = &running{}
	address := "127.0.0.1:" + strconv.Itoa(port)
	var filled []string
	for _, word := range words {
		filled = append(filled, strings.ReplaceAll(word, "ADDRESS", address))
	}
	if _, err := exec.LookPath(filled[0]); err != nil {
		filled[0] = filepath.Join("/usr/sbin", filled[0]) // which is in root's path alone
	}
	if name := filepath.Base(filled[0]); os.Getuid() == 0 && (name == "apache2" || strings.HasPrefix(name, "php-fpm")) {
		// they do not run as root, and another user cannot read the files of the test
		filled = append([]string{"unshare", "--user"}, filled...)
	}
	command := exec.Command(filled[0], filled[1:]...)
	command.Dir, command.Stdout, command.Stderr, command.WaitDelay = b.folder(), &r.out, &r.out, time.Second
	command.Env = append(os.Environ(), "BOOK="+b.book.url, "PORT="+strconv.Itoa(port), "HOME="+b.t.TempDir(), "PYTHONDONTWRITEBYTECODE=1")
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var err error
	if r.Process, err = proctest.Start(command, syscall.SIGKILL); err != nil {
		b.t.Fatalf("%s: %v; make deps installs what is missing", b.about, err)
	}
	b.t.Cleanup(func() {
		r.end()
		if b.t.Failed() {
			b.t.Logf("%s says\n%s", words[0], r.out.String())
		}
	})
	expect.Eventually(b.t, b.about+" takes connections", func() bool {
		if !r.Running() {
			b.t.Fatalf("%s has ended: %v", b.about, r.Err())
		}
		conn, err := net.Dial("tcp", address)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
	return "http://" + address, r
}

var endingServices = filepath.Join("testdata", "endings")

// folder has the services, with their packages.
func (b *behind) folder() string {
	return proctest.Packages(b.t, endingServices)
}

// file writes a file of configuration.
func (b *behind) file(text string) string {
	b.t.Helper()
	file := filepath.Join(b.t.TempDir(), "conf")
	expect.NoError(b.t, "write the configuration", os.WriteFile(file, []byte(text), 0o600))
	return file
}

func (b *behind) nginx(l lines, http, location string) string {
	port, folder := freePort(b.t), b.t.TempDir()
	var paths strings.Builder
	for _, kind := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		paths.WriteString(kind + "_temp_path " + folder + "/" + kind + "; ")
	}
	beside, within := l.split("nginx", "# in the server block\n")
	file := b.file(`daemon off; master_process off; pid ` + folder + `/pid; error_log stderr; events {}
http {
access_log off; ` + paths.String() + `
client_max_body_size 1k; proxy_read_timeout 2s; fastcgi_read_timeout 2s;
limit_req_zone $http_x_event zone=each:1m rate=1r/m;
` + http + `
` + beside + `
server {
listen 127.0.0.1:` + strconv.Itoa(port) + `;
` + within + `
location / { ` + location + ` }
} }`)
	return b.launch(port, "nginx", "-p", folder, "-c", file, "-e", "stderr")
}

func (b *behind) nginxOfTwo(l lines, setting string) string {
	return b.nginx(l, "upstream two { server "+b.app.address()+"; server "+b.app.address()+"; }", setting+"proxy_pass http://two;")
}

// nginxAndPHP starts nginx before a PHP-FPM, which is the service that can be down.
func (b *behind) nginxAndPHP(l lines) string {
	programs, _ := filepath.Glob("/usr/sbin/php-fpm*")
	if len(programs) == 0 {
		b.t.Fatal("there is no php-fpm; make deps installs what is missing")
	}
	port := freePort(b.t)
	conf := b.file(fmt.Sprintf(`
[global]
daemonize = no
error_log = /dev/stderr
[www]
listen = 127.0.0.1:%d
pm = static
pm.max_children = 4
clear_env = no
php_admin_flag[display_errors] = off
`, port))
	up := func() {
		_, fpm := b.run(port, programs[0], "--nodaemonize", "--fpm-config", conf)
		b.down = fpm.end
	}
	up()
	b.up = up
	return b.nginx(l, "", fmt.Sprintf(`fastcgi_pass 127.0.0.1:%d;
fastcgi_param SCRIPT_FILENAME %s/pay.php;
fastcgi_param REQUEST_METHOD $request_method;
fastcgi_param CONTENT_LENGTH $content_length;
fastcgi_param CONTENT_TYPE $content_type;`, port, b.folder()))
}

func (b *behind) haproxy(l lines, setting, server string) string {
	port := freePort(b.t)
	return b.launch(port, "haproxy", "-db", "-f", b.file(`
defaults
    mode http
    timeout connect 10s
    timeout client 1h
    timeout server 1h
    `+setting+`
listen app
    bind 127.0.0.1:`+strconv.Itoa(port)+`
    server one `+b.app.address()+server+`
    `+l["haproxy"]+`
`))
}

// apacheConf begins a file of Apache's configuration.
func (b *behind) apacheConf(port int, modules ...string) string {
	folder := b.t.TempDir()
	conf := fmt.Sprintf(`ServerRoot %s
PidFile %[1]s/pid
DefaultRuntimeDir %[1]s
ServerName shop
ErrorLog /dev/stderr
Listen 127.0.0.1:%d
Timeout 2
`, folder, port)
	for _, module := range append(modules, "authz_core", "headers", "alias") {
		conf += fmt.Sprintf("LoadModule %s_module /usr/lib/apache2/modules/mod_%[1]s.so\n", module)
	}
	return conf
}

func (b *behind) apache(l lines, setting string) string {
	port := freePort(b.t)
	text := filepath.Join(b.t.TempDir(), "not-begun.txt")
	expect.NoError(b.t, "write the text of the error", os.WriteFile(text, []byte("not begun\n"), 0o600))
	conf := b.apacheConf(port, "mpm_event", "proxy", "proxy_http") + strings.Replace(l["apache"], "/var/www/not-begun.txt", text, 1) +
		"ProxyPass / http://" + b.app.address() + "/ retry=0" + setting + "\n"
	return b.launch(port, "apache2", "-DFOREGROUND", "-f", b.file(conf))
}

func (b *behind) cgi(lines) string {
	port := freePort(b.t)
	conf := b.apacheConf(port, "mpm_prefork", "cgi", "env") + "PassEnv BOOK PATH\nScriptAlias /payments " + b.folder() + "/pay.cgi\n"
	return b.launch(port, "apache2", "-DFOREGROUND", "-f", b.file(conf))
}

func (b *behind) varnish(l lines) string {
	port := freePort(b.t)
	vcl := fmt.Sprintf(`vcl 4.1;
backend default { .host = "127.0.0.1"; .port = "%d"; .first_byte_timeout = 2s; }
`, b.app.port) + l["vcl"]
	return b.launch(port, "varnishd", "-F", "-n", b.t.TempDir(), "-j", "none", "-a", "ADDRESS", "-f", b.file(vcl),
		"-s", "malloc,16m", "-T", "none", "-p", "backend_remote_error_holddown=0")
}

func (b *behind) caddy(l lines) string {
	port := freePort(b.t)
	transport, site := l.split("caddy", "# in the site\n")
	conf := fmt.Sprintf(`{
	admin off
	auto_https off
}
http://:%d {
	bind 127.0.0.1
	reverse_proxy %s {
		transport http {
			response_header_timeout 2s
			%s
		}
	}
	%s
}
`, port, b.app.address(), transport, site)
	return b.launch(port, "caddy", "run", "--adapter", "caddyfile", "--config", b.file(conf))
}

// timeoutHandler starts a service in Go whose time net/http limits.
func (b *behind) timeoutHandler(lines) string {
	web := httptest.NewServer(http.TimeoutHandler(b.app, 300*time.Millisecond, "too late"))
	b.t.Cleanup(web.Close)
	return web.URL
}

// limited starts a service of the module timelimits.
func (b *behind) limited(framework string) string {
	program, err := timeLimits()
	expect.NoError(b.t, "build the module", err)
	return b.launch(freePort(b.t), program, framework)
}

// timeLimits builds the module once. Its program stays beside the packages of npm, so that the next
// run links it only if it has changed.
var timeLimits = sync.OnceValues(func() (program string, err error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	program = filepath.Join(cache, "coatcheck-tests", "timelimits")
	if out, err := exec.Command("go", "build", "-C", "timelimits", "-race", "-o", program).CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w: %s", err, out)
	}
	return program, nil
})

// tomcat starts a Tomcat whose only page is the payment.
func (b *behind) tomcat(lines) string {
	const home = "/usr/share/tomcat10"
	port, base := freePort(b.t), b.t.TempDir()
	page, err := os.ReadFile(filepath.Join(endingServices, "pay.jsp"))
	expect.NoError(b.t, "read the page", err)
	for name, text := range map[string]string{
		"app/pay.jsp": string(page),
		"app/WEB-INF/web.xml": `<web-app xmlns="https://jakarta.ee/xml/ns/jakartaee" version="6.0" metadata-complete="true">
<servlet>
<servlet-name>pay</servlet-name>
<servlet-class>org.apache.jasper.servlet.JspServlet</servlet-class>
<init-param><param-name>jspFile</param-name><param-value>/pay.jsp</param-value></init-param>
<async-supported>true</async-supported>
</servlet>
<servlet-mapping><servlet-name>pay</servlet-name><url-pattern>/payments</url-pattern></servlet-mapping>
</web-app>`,
		"conf/server.xml": fmt.Sprintf(`<Server port="-1"><Service name="shop">
<Connector port="%d" address="127.0.0.1"/>
<Engine name="shop" defaultHost="shop"><Host name="shop" appBase="none"><Context path="" docBase="%s/app"/></Host></Engine>
</Service></Server>`, port, base),
	} {
		expect.NoError(b.t, "make the folder of "+name, os.MkdirAll(filepath.Dir(filepath.Join(base, name)), 0o700))
		expect.NoError(b.t, "write "+name, os.WriteFile(filepath.Join(base, name), []byte(text), 0o600))
	}
	return b.restarts(port, "java", "-XX:TieredStopAtLevel=1", "-cp", home+"/bin/bootstrap.jar:"+home+"/bin/tomcat-juli.jar",
		"-Dcatalina.home="+home, "-Dcatalina.base="+base, "org.apache.catalina.startup.Bootstrap", "start")
}
