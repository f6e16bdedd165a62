package cli

import (
	"cmp"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	common "go.opentelemetry.io/proto/otlp/common/v1"
	wiretrace "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	"github.com/coatcheck/coatcheck/access"
	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/proctest"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
)

// receiver is a collector that keeps what it is sent.
type receiver struct {
	*httptest.Server

	mu    sync.Mutex
	all   []*wiretrace.Span
	text  strings.Builder // of everything, resources included
	paths []string
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		body, err := io.ReadAll(request.Body)
		var sent wiretrace.TracesData // has the bytes of an ExportTraceServiceRequest
		if err != nil || proto.Unmarshal(body, &sent) != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.paths = append(r.paths, request.URL.Path)
		for _, resource := range sent.GetResourceSpans() {
			for _, scope := range resource.GetScopeSpans() {
				for _, span := range scope.GetSpans() {
					r.all = append(r.all, proto.CloneOf(span))
					// chance can write anything with them
					span.TraceId, span.SpanId, span.ParentSpanId = nil, nil, nil
				}
			}
		}
		r.text.WriteString(prototext.Format(&sent))
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) spans() []*wiretrace.Span {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.all)
}

// tree writes the spans of a trace, each below its parent, with some of its attributes.
func (r *receiver) tree(trace, parent string, attributes ...string) string {
	spans := r.spans()
	slices.SortStableFunc(spans, func(a, b *wiretrace.Span) int {
		return cmp.Compare(a.GetStartTimeUnixNano(), b.GetStartTimeUnixNano())
	})
	var text strings.Builder
	var write func(parent, indent string)
	write = func(parent, indent string) {
		for _, span := range spans {
			if hex.EncodeToString(span.GetTraceId()) != trace || hex.EncodeToString(span.GetParentSpanId()) != parent {
				continue
			}
			fmt.Fprintf(&text, "%s%s", indent, span.GetName())
			for _, name := range attributes {
				if value := attribute(span, name); value != "" {
					fmt.Fprintf(&text, " %s", value)
				}
			}
			text.WriteString("\n")
			write(hex.EncodeToString(span.GetSpanId()), indent+"  ")
		}
	}
	write(parent, "")
	return text.String()
}

// attribute is a span's attribute as text; "" if it has none of that name.
func attribute(span *wiretrace.Span, name string) string {
	for _, one := range span.GetAttributes() {
		if one.GetKey() != name {
			continue
		}
		if n, ok := one.GetValue().GetValue().(*common.AnyValue_IntValue); ok {
			return fmt.Sprint(n.IntValue)
		}
		return one.GetValue().GetStringValue()
	}
	return ""
}

// begun is a trace that began elsewhere: its id, the span there, and the header that says so.
func begun(n int) (trace, parent, header string) {
	trace, parent = fmt.Sprintf("%032x", 0xace0+n), fmt.Sprintf("%016x", 0xbe60+n)
	return trace, parent, "Traceparent: 00-" + trace + "-" + parent + "-01"
}

const (
	statusCode = "http.response.status_code"
	outcome    = "coatcheck.outcome"
	problem    = "coatcheck.problem"
)

// A token, a payment with it, and the same payment again: each request is in the trace that it came
// with, its domain's part below it, and the scripts below that.
func TestTracesLeadFromTheRequestThroughTheDomainToTheScripts(t *testing.T) {
	redis, traces := redistest.Start(t), newReceiver(t)
	p := serve(t, "--dev", "--redis", redis.URL(), "--trace-endpoint", traces.URL, "--log-format", "json")
	var token api.TokenIssued
	issue, issueParent, header := begun(1)
	p.do("POST", "/token", "", header).into(t, &token)
	first, firstParent, header := begun(2)
	p.answers(201, "POST", "/payments", payment, header, "Idempotency-Token: "+token.Token)
	again, againParent, header := begun(3)
	a := p.answers(201, "POST", "/payments", payment, header, "Idempotency-Token: "+token.Token)
	expect.Equal(t, "Idempotent-Replayed of the payment's repeat", a.header.Get("Idempotent-Replayed"), "true")
	probe, probeParent, header := begun(4)
	p.do("GET", "/readyz", "", header)
	lost, lostParent, header := begun(5)
	p.answers(410, "PUT", "/lock/Zname", `{}`, header, "Lease-Token: Zlease")
	p.endsWell()
	for _, row := range []struct{ name, got, want string }{
		{"a token", traces.tree(issue, issueParent, statusCode, outcome), "POST /token 201\n  idempotency.Issue\n    redis token_issue ok\n"},
		{
			"a payment", traces.tree(first, firstParent, statusCode, outcome),
			"POST /payments 201\n  idempotency.Guard\n    redis token_claim granted\n    handler\n      redis ledger_append ok\n    redis token_complete ok\n",
		},
		{"its repeat", traces.tree(again, againParent, statusCode, outcome), "POST /payments 201\n  idempotency.Guard\n    redis token_claim replay\n"},
		{"a probe", traces.tree(probe, probeParent), ""},
		{"a refusal", traces.tree(lost, lostParent, statusCode, problem), "PUT /lock/{name} 410 lease-lost\n  lock.Renew lease-lost\n"},
	} {
		expect.Equal(t, "trace of "+row.name, row.got, row.want)
	}
	expect.Contains(t, "what the collector was sent", traces.text.String(), `"service.name"`, `"coatcheck"`, `"db.system.name"`, `"http.route"`, `"coatcheck.pipeline.calls"`)
	expect.Equal(t, "paths of the collector that were asked for", slices.Compact(traces.paths), []string{"/v1/traces"})
}

// Everything that a client chooses or must keep secret goes through, well and badly, with Redis
// there and away; no trace holds any of it.
func TestTracesNeverHoldWhatAClientChoseOrMustKeepSecret(t *testing.T) {
	redis, traces := redistest.Start(t), newReceiver(t)
	p := serve(t, "--dev", "--redis", redis.URL(), "--trace-endpoint", traces.URL, "--store-timeout", "1s")
	token := p.issue()
	var lease api.LockGranted
	p.do("POST", "/lock/Zlock", `{"owner":"Zowner"}`).into(t, &lease)
	if token == "" || lease.Lease == "" {
		t.Fatalf("got token %q and lease %q, want both", token, lease.Lease)
	}
	walk := func() {
		for _, c := range []struct {
			method, path, body string
			headers            []string
		}{
			{"GET", "/incr/Zcounter?by=7", "", []string{"Idempotency-Key: Zkey"}},
			{"GET", "/incr/Zcounter?Zquery=Zquery", "", nil},
			{"POST", "/payments", payment, []string{"Idempotency-Token: " + token, "X-Request-Id: Zid", "User-Agent: Zagent", "Authorization: Bearer Zcredential"}},
			{"POST", "/payments", `{"to":"Zpayee"}`, []string{"Idempotency-Token: " + token}},
			{"GET", "/token/" + token, "", nil},
			{"GET", "/Zpath/" + token, "", nil},
			{"PUT", "/lock/Zlock", `{}`, []string{"Lease-Token: " + lease.Lease}},
			{"GET", "/lock/Zlock", "", nil},
			{"POST", "/lock/Zlock", `{"owner":"Zother"}`, []string{"Tracestate: Zvendor=Zstate", "Baggage: Z=Z"}},
			{"POST", "/worker/Zpool", `{"identity":"Zidentity"}`, nil},
			{"GET", "/id/segment/Ztag", "", nil},
		} {
			p.do(c.method, c.path, c.body, c.headers...)
		}
	}
	walk()
	redis.Kill()
	walk()
	p.stop() // the store is away, which it may say
	text := traces.text.String()
	if n := len(traces.spans()); n < 40 {
		t.Errorf("got %d spans, want 40 at least", n)
	}
	expect.Contains(t, "what the collector was sent", text, `"unavailable"`)
	for _, secret := range []string{"Z", token, lease.Lease, "acct_1"} {
		if i := strings.Index(text, secret); i >= 0 {
			t.Errorf("a trace holds %q: %s", secret, text[max(0, i-200):min(len(text), i+50)])
		}
	}
}

// Calls that went out together each have their own span, which says how many there were.
func TestTracesSayHowManyCallsSharedARoundTrip(t *testing.T) {
	redis, traces := redistest.Start(t), newReceiver(t)
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "50") // ms
	p := serve(t, "--redis", redis.URL(), "--trace-endpoint", traces.URL)
	expect.Eventually(t, "a call has shared its round trip", func() bool {
		var callers sync.WaitGroup
		for range 32 {
			callers.Go(func() {
				if _, err := p.try("POST", "/token", ""); err != nil {
					t.Errorf("POST /token: %v", err)
				}
			})
		}
		callers.Wait()
		return slices.ContainsFunc(traces.spans(), func(span *wiretrace.Span) bool {
			n := attribute(span, "coatcheck.pipeline.calls")
			return span.GetName() == "redis token_issue" && n != "" && n != "1"
		})
	})
}

// The variables that OpenTelemetry specifies turn traces on, name the service and choose what is
// kept; nothing that is not kept is sent.
func TestTracesByTheVariablesOfOpenTelemetry(t *testing.T) {
	traces := newReceiver(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", traces.URL)
	t.Setenv("OTEL_SERVICE_NAME", "orders-ids")
	t.Setenv("OTEL_TRACES_SAMPLER", "parentbased_always_off")
	p := serve(t)
	p.do("POST", "/incr/a", "")
	trace, parent, header := begun(1)
	p.do("POST", "/incr/a", "", header)
	p.stop()
	if got := traces.tree(trace, parent); !strings.HasPrefix(got, "POST /incr/{key}\n  counter.Add\n    redis ") {
		t.Errorf("got trace\n%s\nwant POST /incr/{key}, counter.Add below it, and a script below that", got)
	}
	for _, span := range traces.spans() {
		if hex.EncodeToString(span.GetTraceId()) != trace {
			t.Errorf("the collector has span %s of trace %x, want none but of %s", span.GetName(), span.GetTraceId(), trace)
		}
	}
	expect.Contains(t, "what the collector was sent", traces.text.String(), "orders-ids")
	t.Setenv("OTEL_SDK_DISABLED", "true")
	before := len(traces.spans())
	p = serve(t)
	p.do("POST", "/incr/a", "", header)
	p.stop()
	expect.Equal(t, "spans of all services after one that is to send none", len(traces.spans()), before)
}

// The flag of a traceparent keeps a trace if its caller is known and --trace-sample is not 0. Of a
// stranger, who can choose any trace id, it keeps no more than the setting allows.
func TestFlagOfATraceparentCountsAsFarAsTheSettingAllows(t *testing.T) {
	made := newKey(t, "--principal", "known", "--role", "use")
	known, keys := []string{"X-API-Key: " + made.Key}, []string{"--access-keys", lineOf(t, made)}
	for _, row := range []struct {
		name, sample string
		serve        []string
		ask          []string
		want         bool
	}{
		{"0, unknown caller", "0", nil, nil, false},
		{"0, a known caller", "0", keys, known, false},
		{"little, unknown caller", "0.000001", nil, nil, false},
		{"little, a stranger", "0.000001", keys, nil, false},
		{"little, a wrong key", "0.000001", keys, []string{"X-API-Key: " + access.NewKey().Text()}, false},
		{"little, a known caller", "0.000001", keys, known, true},
		{"all, unknown caller", "1", nil, nil, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			traces := newReceiver(t)
			p := serve(t, append([]string{"--trace-endpoint", traces.URL, "--trace-sample", row.sample}, row.serve...)...)
			trace, parent, header := begun(1)
			p.do("POST", "/incr/a", "", append(row.ask, header)...)
			p.stop()
			expect.Equal(t, "the trace is kept", traces.tree(trace, parent) != "", row.want)
		})
	}
}

func TestGatewayFollowsTheFlagOfATraceparentAsFarAsTheSettingAllows(t *testing.T) {
	for sample, want := range map[string]bool{"0": false, "0.000001": false, "1": true} {
		t.Run(sample, func(t *testing.T) {
			t.Parallel()
			traces := newReceiver(t)
			seen := make(chan string, 1)
			upstream := newTill(t, func(w http.ResponseWriter, r *http.Request) { seen <- r.Header.Get("Traceparent") })
			g := runGateway(t, upstream.URL, payRoutes, "--trace-endpoint", traces.URL, "--trace-sample", sample)
			trace, parent, header := begun(1)
			g.do("POST", "/pay/a", "x", header, "Idempotency-Key: k")
			g.endsWell()
			expect.Equal(t, "the trace is kept", traces.tree(trace, parent) != "", want)
			expect.Equal(t, "the upstream is told that it is kept", strings.HasSuffix(<-seen, "-01"), want)
		})
	}
}

func TestTraceSampleIsAPart(t *testing.T) {
	for _, args := range [][]string{
		{"--trace-sample", "2"}, {"--trace-sample", "NaN"}, {"--trace-sample", "-0.1"}, {"--trace-endpoint", "collector:4318"},
		{"--trace-endpoint", "http://user:Zpassword@h"}, {"--trace-endpoint", "grpc://h"}, {"--trace-endpoint", "http://h?Zkey=1"},
	} {
		ended := execute(t, nil, append([]string{"config", "check"}, args...)...).exits(usage, args[0][2:])
		lacks(t, "stderr of "+ended.line, ended.stderr, "Z")
	}
}

// A collector that takes nothing, or that takes and never answers, changes no answer, and the stop
// ends all the same.
func TestACollectorThatIsAwayOrHangsFailsNothing(t *testing.T) {
	hang := make(chan struct{})
	hanging := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // so that its end is noticed
		select {
		case <-hang:
		case <-r.Context().Done():
		}
	}))
	defer hanging.Close()
	defer close(hang)
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "10")  // ms
	t.Setenv("OTEL_BSP_MAX_QUEUE_SIZE", "16")  // spans
	t.Setenv("OTEL_BSP_EXPORT_TIMEOUT", "200") // ms
	for name, url := range map[string]string{"away": "http://" + proctest.ClosedPort(t), "hangs": hanging.URL} {
		began := time.Now()
		p := serve(t, "--trace-endpoint", url)
		for i := range 100 {
			p.answers(200, "POST", "/incr/a", "")
			if i == 50 {
				expect.Eventually(t, "the log says that the collector "+name, func() bool {
					return strings.Contains(p.stderr.String(), "traces cannot be sent")
				})
			}
		}
		p.endsWell()
		most := 2 + int(time.Since(began)/time.Minute)
		if lines := p.logged("traces cannot be sent"); lines > most {
			t.Errorf("the collector %s: got %d lines, want one a minute and one at the end, %d at most:\n%s", name, lines, most, p.stderr)
		}
	}
}

// The gateway hands the trace on to the upstream, which sees the span of its own request as the
// parent.
func TestGatewayHandsTheTraceOn(t *testing.T) {
	traces := newReceiver(t)
	seen := make(chan string, 10)
	upstream := newTill(t, func(w http.ResponseWriter, r *http.Request) {
		seen <- r.Header.Get("Traceparent")
		_, _ = io.WriteString(w, "paid") // the gateway takes it
	})
	g := runGateway(t, upstream.URL, payRoutes, "--trace-endpoint", traces.URL)
	trace, parent, header := begun(1)
	g.do("POST", "/pay/Zname", "x", header, "Idempotency-Key: Zkey")
	paid := <-seen
	again, againParent, header := begun(2)
	g.do("POST", "/pay/Zname", "x", header, "Idempotency-Key: Zkey")
	open, openParent, header := begun(3)
	g.do("GET", "/Zother?Zquery", "", header)
	<-seen
	g.endsWell()
	for _, row := range []struct{ name, got, want string }{
		{
			"guarded", traces.tree(trace, parent, statusCode, outcome),
			"POST /pay/{name} 200 granted\n  idempotency.Guard\n    redis token_claim granted\n    POST 200\n    redis token_complete ok\n",
		},
		{"its repeat", traces.tree(again, againParent, statusCode, outcome), "POST /pay/{name} 200 replay\n  idempotency.Guard\n    redis token_claim replay\n"},
		{"unguarded", traces.tree(open, openParent, statusCode, outcome), "GET 200 unguarded\n  GET 200\n"},
	} {
		expect.Equal(t, "trace of "+row.name, row.got, row.want)
	}
	var sent []string
	for _, span := range traces.spans() {
		if hex.EncodeToString(span.GetTraceId()) == trace && span.GetKind() == wiretrace.Span_SPAN_KIND_CLIENT && span.GetName() == "POST" {
			sent = append(sent, "00-"+trace+"-"+hex.EncodeToString(span.GetSpanId())+"-01")
		}
	}
	expect.Equal(t, "Traceparent that the upstream was told, and that of the gateway's request", []string{paid}, sent)
	lacks(t, "what the collector was sent", traces.text.String(), "Z")
	expect.Contains(t, "what the collector was sent", traces.text.String(), "coatcheck-gateway")
}

// What a domain writes while it serves a request has the request's id as well: here that its answer
// could not be recorded.
func TestLinesOfADomainHaveTheRequest(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	// Redis is away before the delay ends
	p := serve(t, "--dev", "--redis", redis.URL(), "--payment-delay", "10s", "--store-timeout", "2s")
	paid := make(chan answer, 1)
	go func() {
		a, err := p.try("POST", "/payments", payment, "Idempotency-Key: k", "X-Request-Id: mine-2")
		expect.Error(t, "POST /payments", err, nil)
		paid <- a
	}()
	expect.Eventually(t, "the charge is made", func() bool { return len(p.ledger().Payments) == 1 })
	redis.Kill()
	a := <-paid
	a.is(t, "a payment whose answer cannot be recorded", 201)
	expect.Eventually(t, "a line of the log says that an answer could not be recorded, and which request it was of", func() bool {
		for line := range strings.Lines(p.stderr.String()) {
			if strings.Contains(line, "could not be recorded yet") && strings.Contains(line, `"request_id":"mine-2"`) {
				return true
			}
		}
		return false
	})
	redis.Restart() // the service, which tries to record the answer until its end, ends at once
}

// Every line of the log is JSON, and those of a request have its id, and its trace where there is
// one.
func TestLinesOfTheLogHaveRequestAndTrace(t *testing.T) {
	redis, traces := redistest.Start(t), newReceiver(t)
	for _, row := range []struct {
		name string
		args []string
		kept bool
	}{
		{"traced", []string{"--trace-endpoint", traces.URL}, true},
		{"not traced", nil, false},
	} {
		p := serve(t, append([]string{"--redis", redis.URL(), "--log-format", "json", "--log-level", "debug"}, row.args...)...)
		trace, _, header := begun(1)
		a := p.do("POST", "/incr/a", "", header, "X-Request-Id: mine-1")
		expect.Equal(t, row.name+": X-Request-Id", a.header.Get("X-Request-Id"), "mine-1")
		given := p.do("GET", "/nope", "").header.Get("X-Request-Id")
		p.stop()
		found := map[string]map[string]any{}
		for line := range strings.Lines(p.stderr.String()) {
			var fields map[string]any
			if err := json.Unmarshal([]byte(line), &fields); err != nil {
				t.Errorf("%s: not JSON: %s", row.name, line)
			}
			if id, ok := fields["request_id"].(string); ok {
				found[id] = fields
			}
		}
		line := found["mine-1"]
		asked := fmt.Sprintf("%s: line %v", row.name, line)
		expect.Equal(t, asked+": route", line["route"], any("/incr/{key}"))
		expect.Equal(t, asked+": has the trace", line["trace_id"] == trace, row.kept)
		expect.Equal(t, asked+": has a span", line["span_id"] != nil, row.kept)
		if given == "" {
			t.Errorf("%s: GET /nope: no X-Request-Id", row.name)
		}
		expect.Equal(t, row.name+": status in the line of GET /nope", found[given]["status"], any(404.0))
	}
}
