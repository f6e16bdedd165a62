package gateway

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
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
	maxList            = 100 // entries of a list
)

// reader reads the value of one field into a route; "" or what is wrong with it.
type reader func(value *yaml.Node, into *Route) string

// fields are all fields of a route. One that is left out has the default of [idempotency.Route].
var fields = map[string]reader{
	"match":   oneOrMore(func(r *Route) *[]string { return &r.Match }),
	"guard":   yes(func(r *Route, is bool) { r.Unguarded = !is }),
	"encoded": list(1, func(r *Route) *[]string { return &r.Encoded }),
	"keys":    text(func(r *Route) *string { return &r.Keys }),
	"accept": choice(func(r *Route) *idempotency.Accept { return &r.Accept },
		idempotency.TokenOnly, idempotency.KeyOnly, idempotency.TokenOrKey),
	"policy": choice(func(r *Route) *idempotency.Policy { return &r.Policy }, idempotency.Hold, idempotency.Takeover),
	"scope":  text(func(r *Route) *string { return &r.Scope }),

	"principal": readPrincipal,

	"lease_ms":            millis(func(r *Route) *time.Duration { return &r.Lease }, idempotency.MinLease, idempotency.MaxLease),
	"retention_ms":        millis(func(r *Route) *time.Duration { return &r.Retention }, idempotency.MinTTL, idempotency.MaxTTL),
	"upstream_timeout_ms": millis(func(r *Route) *time.Duration { return &r.UpstreamTimeout }, time.Millisecond, maxUpstreamTimeout),
	"max_wait_ms":         readWait,

	"ack":              number(func(r *Route) *int { return &r.Ack }, 0, 100, "replicas"),
	"max_body_bytes":   number(func(r *Route) *int64 { return &r.MaxBody }, 1, maxBody, "bytes"),
	"max_answer_bytes": number(func(r *Route) *int { return &r.MaxAnswer }, 1, maxAnswer, "bytes"),

	"key_header":    oneOrMore(func(r *Route) *[]string { return &r.KeyHeaders }),
	"key_from_body": oneOrMore(func(r *Route) *[]string { return &r.KeyFromBody }),

	"resolve": readResolve,

	"canonical_json":      yes(func(r *Route, is bool) { r.CanonicalJSON = is }),
	"required":            yes(func(r *Route, is bool) { r.Optional = !is }),
	"pass_other_header":   yes(func(r *Route, is bool) { r.PassOther = is }),
	"method_field":        yes(func(r *Route, is bool) { r.MethodField = is }),
	"keep":                list(1, func(r *Route) *[]string { return &r.Keep }),
	"frees":               list(0, func(r *Route) *[]string { return &r.Frees }),
	"doubts":              list(0, func(r *Route) *[]string { return &r.Doubts }),
	"fingerprint_headers": list(1, func(r *Route) *[]string { return &r.Headers }),
}

// readRoute reads one entry of the list.
func readRoute(entry *yaml.Node, into *Route) yamlfile.Faults {
	ofGuard := ""
	found := eachField(entry, func(key, value *yaml.Node) string {
		read, known := fields[key.Value]
		if !known {
			return "unknown field"
		}
		if !slices.Contains([]string{"match", "guard", "encoded", "method_field"}, key.Value) {
			ofGuard = key.Value
		}
		return read(value, into)
	})
	if entry.Kind != yaml.MappingNode {
		return found
	}
	if len(into.Match) == 0 {
		found.Addf(entry.Line, `match: missing; a method and a path, such as "POST /payments", or a list`)
		return found
	}
	into.Name = into.Match[0]
	for _, pattern := range into.Match {
		if wrong := cmp.Or(patternFault(pattern), into.notPlain(pattern)); wrong != "" {
			found.Addf(entry.Line, "match: %q: %s", pattern, wrong)
		}
	}
	for _, one := range into.Encoded {
		if len(one) != 1 || !strings.Contains(delimiters, one) {
			found.Addf(entry.Line, `encoded: %q: of /, \ and ;`, names.Printable(one))
		}
	}
	if into.Keys != "" && !names.Valid(into.Keys) {
		found.Addf(entry.Line, "keys: %s", names.Rule)
	}
	if into.Unguarded && ofGuard != "" {
		found.Addf(entry.Line, "%s: of no use beside guard: false", ofGuard)
	}
	return found
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

// eachField calls do for every field of a map, which returns "" or what is wrong with the field. A
// field that comes twice is a fault of its own.
func eachField(of *yaml.Node, do func(key, value *yaml.Node) string) (found yamlfile.Faults) {
	if of.Kind != yaml.MappingNode {
		found.Addf(of.Line, "a map of fields belongs here, such as match: POST /payments")
		return found
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(of.Content); i += 2 {
		key, value := of.Content[i], of.Content[i+1]
		var wrong string
		switch {
		case key.Kind != yaml.ScalarNode:
			found.Addf(key.Line, "a field's name is plain text")
			continue
		case seen[key.Value]:
			wrong = "given twice"
		default:
			wrong = do(key, value)
		}
		seen[key.Value] = true
		if wrong != "" {
			found.Addf(key.Line, "%s: %s", names.Printable(key.Value), wrong)
		}
	}
	return found
}

func text(of func(*Route) *string) reader {
	return func(value *yaml.Node, into *Route) string {
		if value.Kind != yaml.ScalarNode || value.Tag != "!!str" || value.Value == "" {
			return "a text belongs here"
		}
		*of(into) = value.Value
		return ""
	}
}

func choice[T ~string](of func(*Route) *T, from ...T) reader {
	return func(value *yaml.Node, into *Route) string {
		if value.Kind != yaml.ScalarNode || value.Tag != "!!str" || !slices.Contains(from, T(value.Value)) {
			return fmt.Sprintf("one of %v", from)
		}
		*of(into) = T(value.Value)
		return ""
	}
}

func number[T int | int64](of func(*Route) *T, least, most int64, unit string) reader {
	return whole(func(r *Route, n int64) { *of(r) = T(n) }, least, most, unit)
}

func millis(of func(*Route) *time.Duration, least, most time.Duration) reader {
	set := func(r *Route, n int64) { *of(r) = time.Duration(n) * time.Millisecond }
	return whole(set, least.Milliseconds(), most.Milliseconds(), "milliseconds")
}

// readWait reads max_wait_ms, where 0 means not at all.
func readWait(value *yaml.Node, into *Route) string {
	wrong := millis(func(r *Route) *time.Duration { return &r.MaxWait }, 0, maxWait)(value, into)
	if wrong == "" && into.MaxWait == 0 {
		into.MaxWait = -1
	}
	return wrong
}

// readResolve reads a request that the service is asked by.
func readResolve(value *yaml.Node, into *Route) string {
	if wrong := text(func(r *Route) *string { return &r.ResolveAt })(value, into); wrong != "" {
		return wrong
	}
	return resolveFault(into.ResolveAt)
}

// whole reads a whole number as people write it: no other base, no underscores, no fraction.
func whole(set func(r *Route, n int64), least, most int64, unit string) reader {
	return func(value *yaml.Node, into *Route) string {
		n, err := strconv.ParseInt(value.Value, 10, 64)
		plain := value.Kind == yaml.ScalarNode && value.Tag == "!!int" && strconv.FormatInt(n, 10) == value.Value
		if err != nil || !plain || n < least || n > most {
			return fmt.Sprintf("a whole number from %d to %d, in %s", least, most, unit)
		}
		set(into, n)
		return ""
	}
}

func yes(set func(r *Route, is bool)) reader {
	return func(value *yaml.Node, into *Route) string {
		if value.Kind != yaml.ScalarNode || value.Tag != "!!bool" || value.Value != "true" && value.Value != "false" {
			return "true or false"
		}
		set(into, value.Value == "true")
		return ""
	}
}

// oneOrMore reads a word, or a list of words.
func oneOrMore(of func(*Route) *[]string) reader {
	return func(value *yaml.Node, into *Route) string {
		if value.Kind == yaml.SequenceNode {
			return list(1, of)(value, into)
		}
		var word string
		wrong := text(func(*Route) *string { return &word })(value, into)
		if wrong != "" {
			return fmt.Sprintf("a word, or a list of 1 to %d words", maxList)
		}
		*of(into) = []string{word}
		return ""
	}
}

// list reads a list of words; package idempotency checks them.
func list(least int, of func(*Route) *[]string) reader {
	return func(value *yaml.Node, into *Route) string {
		if value.Kind != yaml.SequenceNode || len(value.Content) < least || len(value.Content) > maxList {
			return fmt.Sprintf("a list of %d to %d entries", least, maxList)
		}
		words := []string{}
		for _, entry := range value.Content {
			if entry.Kind != yaml.ScalarNode || entry.Tag != "!!str" && entry.Tag != "!!int" {
				return "every entry is one word"
			}
			words = append(words, entry.Value)
		}
		*of(into) = words
		return ""
	}
}
