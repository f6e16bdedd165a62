package openapi_test

import (
	"bytes"
	"fmt"
	"html"
	"regexp"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/coatcheck/coatcheck/openapi"
)

func load(t *testing.T, text []byte) *openapi3.T {
	t.Helper()
	document, err := openapi3.NewLoader().LoadFromData(text)
	if err != nil {
		t.Fatal(err)
	}
	return document
}

// With it every example is compared with its schema.
func TestTheDocumentIsOneOfOpenAPI31(t *testing.T) {
	document := load(t, openapi.Document())
	if err := document.Validate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !document.IsOpenAPI31OrLater() {
		t.Errorf("it says that it is of OpenAPI %s", document.OpenAPI)
	}
}

func TestAnExampleThatDoesNotFitIsFound(t *testing.T) {
	for _, change := range [][2]string{
		{"example: { key: orders, value: 12 }", "example: { key: orders, value: '12' }"},
		{"example: { ttl_ms: 600000, scope: payments }", "example: { ttl_ms: 600000, scope: payments, more: 1 }"},
		{"{ value: { key: orders, value: 11, first: 2 } }", "{ value: { key: orders, value: 11 } }"},
		{"worker_id: 1, state: free }", "worker_id: 1, state: free, more: 1 }"},
	} {
		broken := strings.Replace(string(openapi.Document()), change[0], change[1], 1)
		if broken == string(openapi.Document()) {
			t.Fatalf("the document has no %s", change[0])
		}
		if err := load(t, []byte(broken)).Validate(t.Context()); err == nil {
			t.Errorf("%s passes", change[1])
		}
	}
}

func TestEveryOperationSaysWhatItIsAndWhoMayAskForIt(t *testing.T) {
	document := load(t, openapi.Document())
	ids, tags := map[string]bool{}, map[string]bool{}
	for _, tag := range document.Tags {
		tags[tag.Name] = true
	}
	for path, item := range document.Paths.Map() {
		for method, o := range item.Operations() {
			name := method + " " + path
			role := o.Extensions["x-coatcheck-role"]
			switch role {
			case "read", "use", "admin":
				if o.Security != nil {
					t.Errorf("%s needs a role and says that it is open", name)
				}
			case "open":
				if o.Security == nil || len(*o.Security) != 0 {
					t.Errorf("%s is open and asks for a key", name)
				}
			default:
				t.Errorf("%s: role %v", name, role)
			}
			if o.OperationID == "" || ids[o.OperationID] || o.Summary == "" || len(o.Tags) != 1 || !tags[o.Tags[0]] {
				t.Errorf("%s: id %q, summary %q, tags %q", name, o.OperationID, o.Summary, o.Tags)
			}
			ids[o.OperationID] = true
			door := len(o.Tags) > 0 && o.Tags[0] == "doors"
			for status, never := range map[string]bool{"401": true, "403": true, "429": false} { // of what is open to all
				if has := o.Responses.Value(status) != nil; !door && (!has && role != "open" || has && never && role == "open") {
					t.Errorf("%s has an answer %s: %t", name, status, has)
				}
			}
		}
	}
}

// A problem of an answer is one whose status the answer has, and nothing that an answer holds is left open.
func TestAnswersAreClosedAndTheirCodesFitTheirStatus(t *testing.T) {
	document := load(t, openapi.Document())
	problems, _ := document.Components.Schemas["ProblemCode"].Value.Extensions["x-coatcheck-problems"].(map[string]any)
	looked := 0
	for path, item := range document.Paths.Map() {
		for method, o := range item.Operations() {
			for status, response := range o.Responses.Map() {
				content := response.Value.Content["application/problem+json"]
				for _, code := range codesOf(content) {
					looked++
					if problem, _ := problems[code].(map[string]any); fmt.Sprint(problem["status"]) != status {
						t.Errorf("%s %s answers %s with %s, whose status is %v", method, path, status, code, problem["status"])
					}
				}
			}
		}
	}
	if looked < 200 {
		t.Errorf("only %d codes were looked at", looked)
	}
	for name, schema := range document.Components.Schemas {
		closed := schema.Value.AdditionalProperties.Has != nil || schema.Value.UnevaluatedProperties.Has != nil
		if len(schema.Value.Properties) > 0 && !closed && name != "PoolShape" { // which others close
			t.Errorf("%s takes any other field", name)
		}
	}
}

func codesOf(content *openapi3.MediaType) (codes []string) {
	if content == nil {
		return nil
	}
	for _, part := range append(openapi3.SchemaRefs{content.Schema}, content.Schema.Value.AllOf...) {
		code := part.Value.Properties["code"]
		if code == nil || code.Ref != "" {
			continue
		}
		for _, one := range code.Value.Enum {
			codes = append(codes, fmt.Sprint(one))
		}
		if code.Value.Const != nil {
			codes = append(codes, fmt.Sprint(code.Value.Const))
		}
	}
	return codes
}

func TestThePageTellsEveryOperationAndLeadsToWhatItNames(t *testing.T) {
	page := string(openapi.Page())
	ids := map[string]bool{}
	for _, match := range regexp.MustCompile(`id="([^"]+)"`).FindAllStringSubmatch(page, -1) {
		if ids[match[1]] {
			t.Errorf("two places are called %s", match[1])
		}
		ids[match[1]] = true
	}
	for _, match := range regexp.MustCompile(`(?:href="#|aria-labelledby=")([^"]+)"`).FindAllStringSubmatch(page, -1) {
		if !ids[match[1]] {
			t.Errorf("there is no %s", match[1])
		}
	}
	text := html.UnescapeString(regexp.MustCompile(`<[^>]*>`).ReplaceAllString(page, ""))
	document := load(t, openapi.Document())
	for path, item := range document.Paths.Map() {
		for method, o := range item.Operations() {
			for _, part := range []string{method + " " + path, o.Summary} {
				if !ids[o.OperationID] || !strings.Contains(text, part) {
					t.Errorf("the page lacks %q", part)
				}
			}
			for _, parameter := range o.Parameters {
				if !strings.Contains(text, parameter.Value.Name) {
					t.Errorf("the page lacks the parameter %s", parameter.Value.Name)
				}
			}
		}
	}
	for name, schema := range document.Components.Schemas {
		for field := range schema.Value.Properties {
			if !strings.Contains(text, field) {
				t.Errorf("the page lacks %s of %s", field, name)
			}
		}
	}
	for _, part := range []string{`"outcome": "granted"`, "whole milliseconds", "x-www-form-urlencoded", "quarantined_ms", "idempotency-outcome-unknown", "100 to 86400000"} {
		if !strings.Contains(text, part) {
			t.Errorf("the page lacks %s", part)
		}
	}
}

func TestWhatIsHandedOutIsTheCallers(t *testing.T) {
	for name, get := range map[string]func() []byte{"document": openapi.Document, "page": openapi.Page} {
		clear(get())
		if bytes.IndexByte(get(), 0) >= 0 {
			t.Errorf("the %s was overwritten", name)
		}
	}
}
