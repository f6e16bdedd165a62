package tracing

import (
	"compress/gzip"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	wire "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/logtest"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
)

// asked is a request that the collector was sent.
type asked struct {
	path    string
	headers http.Header
	spans   []string
	schemas []string // of the scopes
}

// collector keeps what it is sent, and answers as it is told, in the end with 200 and nothing.
type collector struct {
	t       *testing.T
	answers []func(http.ResponseWriter)

	mu  sync.Mutex
	all []asked
}

func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var body io.Reader = r.Body
	if r.Header.Get("Content-Encoding") == "gzip" {
		unpacked, err := gzip.NewReader(body)
		if err != nil {
			c.t.Errorf("the collector reads gzip: %v", err)
			return
		}
		body = unpacked
	}
	text, err := io.ReadAll(body)
	// the bytes of an ExportTraceServiceRequest, whose package imports gRPC
	var sent wire.TracesData
	if err := errors.Join(err, proto.Unmarshal(text, &sent)); err != nil {
		c.t.Errorf("the collector reads protobuf: %v", err)
	}
	one := asked{path: r.URL.Path, headers: r.Header}
	for _, resource := range sent.GetResourceSpans() {
		for _, scope := range resource.GetScopeSpans() {
			one.schemas = append(one.schemas, scope.GetSchemaUrl())
			for _, span := range scope.GetSpans() {
				one.spans = append(one.spans, span.GetName())
			}
		}
	}
	c.mu.Lock()
	c.all = append(c.all, one)
	n := len(c.all)
	c.mu.Unlock()
	if n <= len(c.answers) {
		c.answers[n-1](w)
	}
}

func newCollector(t *testing.T, answers ...func(http.ResponseWriter)) (*collector, *httptest.Server) {
	t.Helper()
	c := &collector{t: t, answers: answers}
	server := httptest.NewUnstartedServer(c)
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	t.Cleanup(server.Close)
	return c, server
}

// sendOne makes one span, and returns the warnings of its sending.
func sendOne(t *testing.T, base string) (logged string) {
	t.Helper()
	var warnings logtest.Text
	traces, err := Open(t.Context(), Config{Endpoint: base, Version: "9", Logger: slog.New(slog.NewTextHandler(&warnings, &slog.HandlerOptions{Level: slog.LevelWarn}))})
	expect.NoError(t, "opening traces", err)
	_, span := traces.Tracer().Start(t.Context(), "one")
	span.End()
	expect.NoError(t, "closing traces", traces.Close(t.Context()))
	return warnings.String()
}

// status answers so.
func status(code int, headers ...string) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) {
		for i := 0; i < len(headers); i += 2 {
			w.Header().Set(headers[i], headers[i+1])
		}
		w.WriteHeader(code)
	}
}

func TestSpansAreSentAsTheVariablesSay(t *testing.T) {
	const all, own = "OTEL_EXPORTER_OTLP_", "OTEL_EXPORTER_OTLP_TRACES_"
	for _, row := range []struct {
		name      string
		variables map[string]string // URL stands for the collector's
		base      string
		path      string
		headers   map[string]string
	}{
		{"base URL", map[string]string{all + "ENDPOINT": "URL"}, "", "/v1/traces", map[string]string{"Content-Type": "application/x-protobuf", "Content-Encoding": "", "User-Agent": "coatcheck/9"}},
		{"base URL with a path", map[string]string{all + "ENDPOINT": "URL/otlp/"}, "", "/otlp/v1/traces", nil},
		{"whole URL", map[string]string{own + "ENDPOINT": "URL/mine", all + "ENDPOINT": "http://127.0.0.1:1"}, "", "/mine", nil},
		{"whole URL without a path", map[string]string{own + "ENDPOINT": "URL"}, "", "/", nil},
		{"the flag goes first", map[string]string{own + "ENDPOINT": "http://127.0.0.1:1"}, "URL/", "/v1/traces", nil},
		{"the URL says whether there is TLS", map[string]string{all + "ENDPOINT": "URL", all + "INSECURE": "false"}, "", "/v1/traces", nil},
		{
			"headers, timeout and gzip",
			map[string]string{all + "ENDPOINT": "URL", all + "HEADERS": " x-key = a%2Cb%20c ,Authorization=Bearer%20t=,", all + "TIMEOUT": "60000", all + "COMPRESSION": "gzip", all + "PROTOCOL": "http/protobuf"},
			"", "/v1/traces", map[string]string{"X-Key": "a,b c", "Authorization": "Bearer t=", "Content-Encoding": "gzip"},
		},
		{
			"those of traces go first",
			map[string]string{all + "ENDPOINT": "URL", all + "HEADERS": "x-key=all", own + "HEADERS": "x-key=traces", all + "COMPRESSION": "gzip", own + "COMPRESSION": "none"},
			"", "/v1/traces", map[string]string{"X-Key": "traces", "Content-Encoding": ""},
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			c, server := newCollector(t)
			server.Start()
			for name, value := range row.variables {
				t.Setenv(name, strings.Replace(value, "URL", server.URL, 1))
			}
			logged := sendOne(t, strings.Replace(row.base, "URL", server.URL, 1))
			if len(c.all) != 1 {
				t.Fatalf("the collector was asked %d times, want once; logged: %s", len(c.all), logged)
			}
			expect.Equal(t, "spans", c.all[0].spans, []string{"one"})
			expect.Equal(t, "path", c.all[0].path, row.path)
			for name, want := range row.headers {
				expect.Equal(t, name, c.all[0].headers.Get(name), want)
			}
			expect.Equal(t, "what is logged", logged, "")
		})
	}
}

func TestAnotherProtocolIsLoggedAndNotSpoken(t *testing.T) {
	c, server := newCollector(t)
	server.Start()
	t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
	expect.Contains(t, "what is logged", sendOne(t, server.URL), "OTEL_EXPORTER_OTLP_PROTOCOL", "protocol=grpc")
	expect.Equal(t, "requests", len(c.all), 1)
}

// The collector's certificate, which no system trusts, is also its CA, and that of the client.
func TestSpansAreSentByTLS(t *testing.T) {
	certificate, key := redistest.KeyPair(t)
	pair, err := tls.LoadX509KeyPair(certificate, key)
	expect.NoError(t, "reading the key pair", err)
	text, err := os.ReadFile(certificate)
	expect.NoError(t, "reading the certificate", err)
	authorities := x509.NewCertPool()
	authorities.AppendCertsFromPEM(text)
	for _, row := range []struct {
		name      string
		variables map[string]string
		logged    string // "" = the span arrives
	}{
		{"trusted and known", map[string]string{"CERTIFICATE": certificate, "CLIENT_CERTIFICATE": certificate, "CLIENT_KEY": key}, ""},
		{"by those of traces", map[string]string{"TRACES_CERTIFICATE": certificate, "TRACES_CLIENT_CERTIFICATE": certificate, "TRACES_CLIENT_KEY": key}, ""},
		{"not trusted", nil, "certificate signed by unknown authority"},
		{"not known", map[string]string{"CERTIFICATE": certificate}, "certificate required"},
	} {
		t.Run(row.name, func(t *testing.T) {
			c, server := newCollector(t)
			server.TLS = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: authorities}
			server.StartTLS()
			for name, value := range row.variables {
				t.Setenv("OTEL_EXPORTER_OTLP_"+name, value)
			}
			logged := sendOne(t, server.URL)
			if row.logged != "" {
				expect.Contains(t, "what is logged", logged, "traces cannot be sent", row.logged)
			}
			expect.Equal(t, "the span arrives; logged: "+logged, len(c.all) == 1, row.logged == "")
		})
	}
}

// A collector that moved could make of a request one without spans, which a page then answers with
// 200, and could have the credentials sent elsewhere.
func TestARedirectionIsNotFollowed(t *testing.T) {
	elsewhere, other := newCollector(t)
	other.Start()
	for _, code := range []int{302, 307} {
		_, server := newCollector(t, status(code, "Location", other.URL))
		server.Start()
		t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-api-key=Zsecret")
		expect.Contains(t, "what is logged", sendOne(t, server.URL), "traces cannot be sent", http.StatusText(code))
	}
	expect.Equal(t, "requests that were sent elsewhere", len(elsewhere.all), 0)
}

func TestTheScopeNamesTheSchemaOfItsAttributes(t *testing.T) {
	c, server := newCollector(t)
	server.Start()
	sendOne(t, server.URL)
	expect.Equal(t, "schemas of the scopes", c.all[0].schemas, []string{"https://opentelemetry.io/schemas/1.43.0"})
}

// A faulty variable of the SDK's is ignored, which is not the loss of any trace.
func TestFaultyVariablesOfTheSDKAreLogged(t *testing.T) {
	c, server := newCollector(t)
	server.Start()
	t.Setenv("OTEL_TRACES_SAMPLER", "nonsense")
	t.Setenv("OTEL_BSP_MAX_QUEUE_SIZE", "many")
	t.Setenv("OTEL_SPAN_LINK_COUNT_LIMIT", "few")
	logged := sendOne(t, server.URL)
	expect.Contains(t, "what is logged", logged,
		"a variable of OpenTelemetry is faulty", "nonsense", "OTEL_BSP_MAX_QUEUE_SIZE", "OTEL_SPAN_LINK_COUNT_LIMIT")
	if strings.Contains(logged, "dropped") {
		t.Errorf("got log %q, want nothing of dropped traces", logged)
	}
	expect.Equal(t, "requests", len(c.all), 1)
}

// While the collector has one batch, more spans end than the queue holds.
func TestSpansThatFindTheQueueFullAreLogged(t *testing.T) {
	t.Setenv("OTEL_BSP_MAX_QUEUE_SIZE", "4")
	t.Setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "1")
	came, leave := make(chan struct{}, 100), make(chan struct{})
	_, server := newCollector(t, func(http.ResponseWriter) {
		came <- struct{}{}
		<-leave
	})
	server.Start()
	var log logtest.Text
	traces, err := Open(t.Context(), Config{Endpoint: server.URL, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	expect.NoError(t, "opening traces", err)
	end := func(n int) {
		for range n {
			_, span := traces.Tracer().Start(t.Context(), "one")
			span.End()
		}
	}
	end(1)
	<-came
	end(10)
	close(leave)
	expect.NoError(t, "closing traces", traces.Close(t.Context()))
	expect.Contains(t, "what is logged", log.String(), "traces cannot be sent, and are dropped", "6 spans found the queue full")
}

// A minute's further losses are logged with the next one, and at the end without a next one.
func TestLossesThatWereNotLoggedAreLoggedAtTheEnd(t *testing.T) {
	t.Setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "1")
	_, server := newCollector(t, status(400), status(400), status(400))
	server.Start()
	var log logtest.Text
	traces, err := Open(t.Context(), Config{Endpoint: server.URL, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	expect.NoError(t, "opening traces", err)
	for range 3 {
		_, span := traces.Tracer().Start(t.Context(), "one")
		span.End()
	}
	expect.NoError(t, "closing traces", traces.Close(t.Context()))
	expect.Contains(t, "what is logged", log.String(), "not_told_before=0", "400 Bad Request", "not_told_before=1")
	expect.Equal(t, "lines of the log", strings.Count(log.String(), "traces cannot be sent, and are dropped"), 2)
}

// The collector is away when the first spans are sent, and comes back.
func TestSpansWaitForACollectorThatStartsAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		answer := roundTrip(func() (*http.Response, error) {
			if n++; n <= 2 {
				return nil, syscall.ECONNREFUSED
			}
			return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
		})
		var log logtest.Text
		c := clientOver(answer, log.Logger())
		expect.NoError(t, "sending", c.UploadTraces(t.Context(), nil))
		expect.Equal(t, "tries", n, 3)
		expect.Contains(t, "what is logged", log.String(), "away", "connection refused")
	})
}

// A stop does not wait for a collector that is away.
func TestClosingDoesNotWaitForACollectorThatIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tried := make(chan struct{}, 9)
		answer := roundTrip(func() (*http.Response, error) {
			tried <- struct{}{}
			return nil, syscall.ECONNREFUSED
		})
		c := clientOver(answer, slog.New(slog.DiscardHandler))
		began := time.Now()
		go func() {
			<-tried
			synctest.Wait()
			close(c.closing)
		}()
		for range 2 { // what is on its way, and what is left
			expect.Error(t, "sending", c.UploadTraces(t.Context(), nil), syscall.ECONNREFUSED)
		}
		expect.Equal(t, "time that it took", time.Since(began), 0)
	})
}

func TestSpansAreSentAgainAfterABusyCollectorsPause(t *testing.T) {
	c, server := newCollector(t, status(503, "Retry-After", "1"))
	server.Start()
	logged := sendOne(t, server.URL)
	expect.Equal(t, "what is logged", logged, "")
	if len(c.all) != 2 {
		t.Fatalf("the collector was asked %d times, want twice: it answers 503, then 200", len(c.all))
	}
	expect.Equal(t, "spans of the second request", c.all[1].spans, c.all[0].spans)
}

// What the collector refuses or complains of is logged: who runs the service could not see it else.
func TestComplaintsOfTheCollectorAreLogged(t *testing.T) {
	partly := func(refused uint64, message string) []byte {
		var b []byte
		if refused > 0 {
			b = protowire.AppendVarint(protowire.AppendTag(b, 1, protowire.VarintType), refused)
		}
		b = protowire.AppendString(protowire.AppendTag(b, 2, protowire.BytesType), message)
		return protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), b)
	}
	// a google.rpc.Status
	failed := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 3)
	failed = protowire.AppendString(protowire.AppendTag(failed, 2, protowire.BytesType), "no such tenant")
	for _, row := range []struct {
		name, kind string
		code       int
		body       []byte
		logged     []string // nothing else: "" is the whole
	}{
		{"a part refused", protobuf, 200, partly(3, "too old"), []string{"all but 3 spans", "too old"}},
		{"a warning", protobuf, 202, partly(0, "slow down"), []string{"all but 0 spans", "slow down"}},
		{"nothing to complain of", protobuf, 200, partly(0, ""), nil},
		{"broken", protobuf, 200, []byte{0xff, 0xff}, nil},
		{"not protobuf", "text/html", 200, []byte("\x0a\x00"), nil},
		{"refused, as a message", protobuf, 400, failed, []string{"400 Bad Request", "no such tenant"}},
		{"refused, as text", "text/plain", 401, []byte("who are you?"), []string{"401 Unauthorized", "who are you?"}},
		{"an error that stays", "text/plain", 500, []byte("oops"), []string{"500 Internal Server Error", "oops"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			c, server := newCollector(t, func(w http.ResponseWriter) {
				w.Header().Set("Content-Type", row.kind)
				w.WriteHeader(row.code)
				_, _ = w.Write(row.body)
			})
			server.Start()
			logged := sendOne(t, server.URL)
			expect.Equal(t, "requests", len(c.all), 1)
			if row.logged == nil {
				expect.Equal(t, "what is logged", logged, "")
			}
			expect.Contains(t, "what is logged", logged, row.logged...)
		})
	}
}

// roundTrip answers without a network, so that pauses take no time.
type roundTrip func() (*http.Response, error)

func (f roundTrip) RoundTrip(*http.Request) (*http.Response, error) { return f() }

// clientOver sends by a transport, and logs that nobody answers.
func clientOver(transport roundTrip, log *slog.Logger) *client {
	return &client{
		client: &http.Client{Transport: transport}, endpoint: "http://collector/v1/traces", headers: http.Header{},
		away: &complaints{log: log, text: "away"}, closing: make(chan struct{}),
	}
}

func TestPausesBetweenTries(t *testing.T) {
	type tries struct {
		n           int
		least, most time.Duration // in all
	}
	// seven seconds after the clock's beginning
	moment := time.Date(2000, 1, 1, 0, 0, 7, 0, time.UTC).Format(http.TimeFormat)
	for _, row := range []struct {
		name, after string
		code        int
		err         error
		want        tries
	}{
		{"busy, in seconds", "25", 429, nil, tries{3, 50 * time.Second, 50 * time.Second}},
		{"busy, at a moment that passes", moment, 503, nil, tries{4, 7 * time.Second, time.Minute}},
		{"busy, longer than we try", "3600", 503, nil, tries{1, 0, 0}},
		{"busy, for how long is not said", "", 502, nil, tries{3, 6 * time.Second, time.Minute}},
		{"busy, with nonsense", "-1", 504, nil, tries{3, 6 * time.Second, time.Minute}},
		{"a timeout", "", 0, os.ErrDeadlineExceeded, tries{3, 6 * time.Second, time.Minute}},
		{"not sent", "", 0, errors.New("no route"), tries{3, 6 * time.Second, time.Minute}},
		{"not trusted", "", 0, &tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}, tries{1, 0, 0}},
		{"not let in", "", 0, &net.OpError{Op: "remote error", Err: tls.AlertError(116)}, tries{1, 0, 0}},
		{"an error that stays", "", 500, nil, tries{1, 0, 0}},
		{"an error that stays, whatever it says", "1", 404, nil, tries{1, 0, 0}},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := 0
				answer := roundTrip(func() (*http.Response, error) {
					n++
					if row.err != nil {
						return nil, row.err
					}
					return &http.Response{StatusCode: row.code, Header: http.Header{"Retry-After": {row.after}}, Body: http.NoBody}, nil
				})
				c := clientOver(answer, slog.New(slog.DiscardHandler))
				c.client.Timeout = time.Second
				began := time.Now()
				err := c.UploadTraces(t.Context(), nil)
				if took := time.Since(began); err == nil || n < row.want.n || row.want.n == 1 && n > 1 || took < row.want.least || took > row.want.most {
					t.Errorf("%d tries in %v, error %v, want an error after %d at least (or the only one), in %v to %v", n, took, err, row.want.n, row.want.least, row.want.most)
				}
			})
		})
	}
}

func TestFaultsOfVariablesAreNamedWithoutTheirValues(t *testing.T) {
	certificate, _ := redistest.KeyPair(t)
	for name, value := range map[string]string{
		"ENDPOINT": "http://user:Zsecret@h", "TRACES_ENDPOINT": "Zhost:4318", "HEADERS": "a=b,Zkey", "TRACES_HEADERS": "a b=Z",
		"TIMEOUT": "Zs", "TRACES_TIMEOUT": "-1", "COMPRESSION": "Zstd", "CERTIFICATE": "/nowhere", "CLIENT_CERTIFICATE": certificate, "CLIENT_KEY": certificate,
		"RESOURCE_ATTRIBUTES": "a=b,Zkey",
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
			t.Setenv("OTEL_"+strings.Replace("EXPORTER_OTLP_"+name, "EXPORTER_OTLP_RESOURCE", "RESOURCE", 1), value)
			_, err := Open(t.Context(), Config{})
			if err == nil {
				t.Fatalf("%s=%q is taken, want an error", name, value)
			}
			expect.Contains(t, "error", err.Error(), strings.TrimPrefix(name, "TRACES_"))
			if strings.Contains(err.Error(), "Z") {
				t.Errorf("%s=%q: the error %q repeats it", name, value, err)
			}
		})
	}
}
