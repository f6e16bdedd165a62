package gateway

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/coatcheck/coatcheck/idempotency"
	"github.com/coatcheck/coatcheck/internal/muxpattern"
	"github.com/coatcheck/coatcheck/internal/names"
	"github.com/coatcheck/coatcheck/internal/yamlfile"
)

// Bounds of what a routes file may ask for, beside those of package idempotency.
const (
	maxBody            = 1 << 30  // bytes of a request
	maxAnswer          = 64 << 20 // bytes of an answer: they are held in memory and kept in Redis
	maxWait            = time.Hour
	maxUpstreamTimeout = 24 * time.Hour
)

// fields are all fields of a route. One that is left out has the default of [idempotency.Route].
func (r *Route) fields() yamlfile.Fields {
	return yamlfile.Fields{
		"match":        yamlfile.Words(&r.Match),
		"guard":        yamlfile.Bool(func(is bool) { r.Unguarded = !is }),
		"encoded":      yamlfile.List(&r.Encoded, 1),
		"method_field": yamlfile.Bool(func(is bool) { r.MethodField = is }),

		"principal": r.Caller.read,
		"keys":      yamlfile.Text(&r.Keys),
		"scope":     yamlfile.Text(&r.Scope),
		"accept":    yamlfile.Choice(&r.Accept, idempotency.AcceptToken, idempotency.AcceptKey, idempotency.AcceptEither),
		"required":  yamlfile.Bool(func(is bool) { r.Optional = !is }),

		"key_header":          yamlfile.Words(&r.KeyHeaders),
		"key_from_body":       yamlfile.Words(&r.KeyFromBody),
		"pass_other_header":   yamlfile.Bool(func(is bool) { r.PassOther = is }),
		"canonical_json":      yamlfile.Bool(func(is bool) { r.CanonicalJSON = is }),
		"fingerprint_headers": yamlfile.List(&r.Headers, 1),

		"policy":  yamlfile.Choice(&r.Policy, idempotency.PolicyHold, idempotency.PolicyTakeover),
		"resolve": r.readResolve,
		"keep":    yamlfile.List(&r.Keep, 1),
		"frees":   yamlfile.List(&r.Frees, 0),
		"doubts":  yamlfile.List(&r.Doubts, 0),

		"lease_ms":            yamlfile.Millis(&r.Lease, idempotency.MinLease, idempotency.MaxLease),
		"retention_ms":        yamlfile.Millis(&r.Retention, idempotency.MinTTL, idempotency.MaxRetention),
		"upstream_timeout_ms": yamlfile.Millis(&r.UpstreamTimeout, time.Millisecond, maxUpstreamTimeout),
		"max_wait_ms":         r.readWait,

		"ack":              yamlfile.Whole(&r.Ack, 0, 100, "replicas"),
		"max_body_bytes":   yamlfile.Whole(&r.MaxBody, 1, maxBody, "bytes"),
		"max_answer_bytes": yamlfile.Whole(&r.MaxAnswer, 1, maxAnswer, "bytes"),
	}
}

// readRoute reads one entry of the list.
func readRoute(found *yamlfile.Faults, entry *yaml.Node, into *Route) {
	into.fields().Read(found, entry)
	if entry.Kind != yaml.MappingNode {
		return
	}
	if len(into.Match) == 0 {
		found.Addf(entry.Line, `match: missing; a method and a path, such as "POST /payments", or a list`)
		return
	}
	into.Name = into.Match[0]
	for _, pattern := range into.Match {
		if wrong := cmp.Or(patternFault(pattern), into.notPlain(pattern)); wrong != "" {
			found.Addf(yamlfile.LineOf(entry, "match"), "match: %q: %s", pattern, wrong)
		}
	}
	for _, one := range into.Encoded {
		if len(one) != 1 || !strings.Contains(delimiters, one) {
			found.Addf(yamlfile.LineOf(entry, "encoded"), `encoded: %q: of /, \ and ;`, names.Printable(one))
		}
	}
	if into.Keys != "" && !names.Valid(into.Keys) {
		found.Addf(yamlfile.LineOf(entry, "keys"), "keys: %s", names.Rule)
	}
	for i := 0; into.Unguarded && i < len(entry.Content); i += 2 {
		if of := entry.Content[i]; !slices.Contains([]string{"match", "guard", "encoded", "method_field"}, of.Value) {
			found.Addf(of.Line, "%s: of no use beside guard: false", of.Value)
		}
	}
}

// readWait reads max_wait_ms, where 0 means not at all.
func (r *Route) readWait(found *yamlfile.Faults, name string, at *yaml.Node) {
	before := len(*found)
	yamlfile.Millis(&r.MaxWait, 0, maxWait)(found, name, at)
	if len(*found) == before && r.MaxWait == 0 {
		r.MaxWait = -1
	}
}

// readResolve reads the request that the service is asked by.
func (r *Route) readResolve(found *yamlfile.Faults, name string, at *yaml.Node) {
	before := len(*found)
	yamlfile.Text(&r.ResolveAt)(found, name, at)
	if len(*found) > before {
		return
	}
	if wrong := resolveFault(r.ResolveAt); wrong != "" {
		found.Addf(at.Line, "%s: %s", name, wrong)
	}
}

// patternFault is why a pattern guards nothing, "" if it does not.
func patternFault(pattern string) string {
	if wrong := muxpattern.Fault(pattern); wrong != "" {
		return wrong
	}
	method, _, path := muxpattern.Split(pattern)
	if (method == http.MethodGet || method == http.MethodHead) && (path == policyPath || problemPage(path) != "") {
		return "the gateway answers this path itself"
	}
	return ""
}

// notPlain is why the path of a pattern is plain in no unsafe request of the route, "" if it can
// be.
func (r *Route) notPlain(pattern string) string {
	method, _, path := muxpattern.Split(pattern)
	if method == "" || muxpattern.IsSafe(method) {
		return ""
	}
	for segment := range strings.SplitSeq(path, "/") {
		text, _ := url.PathUnescape(segment)
		if err := checkDecoded("/" + text); err != nil {
			return "no request can match it: " + err.Error()
		}
		for delimiter := range strings.SplitSeq(delimiters, "") {
			if strings.Contains(text, delimiter) && !slices.Contains(r.Encoded, delimiter) {
				return fmt.Sprintf("no request can match it without encoded: [%q]", delimiter)
			}
		}
	}
	return ""
}
