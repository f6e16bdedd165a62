package openapi_test

import (
	"bytes"
	"fmt"
	"html"
	"maps"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/coatcheck/coatcheck/internal/testing/apitest"
	"github.com/coatcheck/coatcheck/openapi"
)

func load(t *testing.T, text []byte) *openapi3.T {
	t.Helper()
	document, err := openapi3.NewLoader().LoadFromData(text)
	if err != nil {
		t.Fatalf("reading the document: %v", err)
	}
	return document
}

// loaded is the document as it is published, read once. Tests only look at it.
var loaded = sync.OnceValues(func() (*openapi3.T, error) { return openapi3.NewLoader().LoadFromData(openapi.Document()) })

func published(t *testing.T) *openapi3.T {
	t.Helper()
	document, err := loaded()
	if err != nil {
		t.Fatalf("reading the document: %v", err)
	}
	return document
}

// With it every example is compared with its schema.
func TestTheDocumentIsOneOfOpenAPI31(t *testing.T) {
	document := published(t)
	if err := document.Validate(t.Context()); err != nil {
		t.Fatalf("the document is none of OpenAPI: %v", err)
	}
	if !document.IsOpenAPI31OrLater() {
		t.Errorf("the document says that it is of OpenAPI %s, want 3.1 or later", document.OpenAPI)
	}
}

// only is the document with one of its paths: it is validated many times as quickly.
func only(document *openapi3.T, path string) *openapi3.T {
	part := *document
	part.Paths = openapi3.NewPaths(openapi3.WithPath(path, document.Paths.Value(path)))
	return &part
}

func TestAnExampleThatDoesNotFitIsFound(t *testing.T) {
	// the path has the example, or leads to it
	for _, change := range []struct{ path, is, becomes string }{
		{"/counter/{key}", "example: { key: orders, value: 12 }", "example: { key: orders, value: '12' }"},
		{"/token", "example: { ttl_ms: 600000, scope: payments }", "example: { ttl_ms: 600000, scope: payments, more: 1 }"},
		{"/incr/{key}", "{ value: { key: orders, value: 11, first: 2 } }", "{ value: { key: orders, value: 11 } }"},
		{"/worker/{pool}", "worker_id: 1, state: free }", "worker_id: 1, state: free, more: 1 }"},
	} {
		broken := strings.Replace(string(openapi.Document()), change.is, change.becomes, 1)
		if broken == string(openapi.Document()) {
			t.Fatalf("the document has no %s", change.is)
		}
		closed, err := apitest.Closed([]byte(broken))
		if err != nil {
			t.Fatalf("closing the answers of the document: %v", err)
		}
		if err := only(load(t, closed), change.path).Validate(t.Context()); err == nil {
			t.Errorf("%s with %s passes, want an error", change.path, change.becomes)
		}
	}
}

func TestEveryOperationSaysWhatItIsAndWhoMayAskForIt(t *testing.T) {
	document := published(t)
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
					t.Errorf("%s needs the role %s and says that it is open", name, role)
				}
			case "open":
				if o.Security == nil || len(*o.Security) != 0 {
					t.Errorf("%s is open and asks for a key", name)
				}
			default:
				t.Errorf("%s: got role %v, want read, use, admin or open", name, role)
			}
			if o.OperationID == "" || ids[o.OperationID] || o.Summary == "" || len(o.Tags) != 1 || !tags[o.Tags[0]] {
				t.Errorf("%s: got id %q, summary %q, tags %q; want an id of its own, a summary, and one tag that the document has", name, o.OperationID, o.Summary, o.Tags)
			}
			ids[o.OperationID] = true
			door := len(o.Tags) > 0 && o.Tags[0] == "doors"
			if o.Responses.Value("403") == nil {
				t.Errorf("%s has no answer 403, which each path gives under a Host that is none of the service's", name)
			}
			// of what is open to all
			for status, never := range map[string]bool{"401": true, "429": false} {
				if has := o.Responses.Value(status) != nil; !door && (!has && role != "open" || has && never && role == "open") {
					t.Errorf("%s with role %s has an answer %s: got %t, want %t", name, role, status, has, !has)
				}
			}
		}
	}
}

// Doors take any method, and the document has each of them with the role that it needs.
func TestTheDocumentHasTheRoleOfEachMethodOfADoor(t *testing.T) {
	doors := 0
	for path, item := range published(t).Paths.Map() {
		roles := map[string]any{}
		for method, o := range item.Operations() {
			if len(o.Tags) > 0 && o.Tags[0] == "doors" {
				roles[method] = o.Extensions["x-coatcheck-role"]
				also, _ := o.Extensions["x-coatcheck-also"].(map[string]any)
				maps.Copy(roles, also)
			}
		}
		if len(roles) == 0 {
			continue
		}
		doors++
		for _, method := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"} {
			if role := roles[method]; role == nil || role != roles["GET"] {
				t.Errorf("%s %s: got role %v, want that of GET, %v", method, path, role, roles["GET"])
			}
		}
	}
	if doors != 9 {
		t.Errorf("got %d doors, want 9", doors)
	}
}

func TestTheCodesOfAnAnswerFitItsStatus(t *testing.T) {
	document := published(t)
	problems, _ := document.Components.Schemas["ProblemCode"].Value.Extensions["x-coatcheck-problems"].(map[string]any)
	looked := 0
	for path, item := range document.Paths.Map() {
		for method, o := range item.Operations() {
			for status, response := range o.Responses.Map() {
				content := response.Value.Content["application/problem+json"]
				for _, code := range codesOf(content) {
					looked++
					if problem, _ := problems[code].(map[string]any); fmt.Sprint(problem["status"]) != status {
						t.Errorf("%s %s answers %s with %s, want status %v", method, path, status, code, problem["status"])
					}
				}
			}
		}
	}
	if looked < 200 {
		t.Errorf("only %d codes were looked at, want 200 at least", looked)
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
		words, _ := code.Value.Extensions["x-extensible-enum"].([]any)
		for _, one := range words {
			codes = append(codes, fmt.Sprint(one))
		}
	}
	return codes
}

func TestThePageTellsEveryOperationAndLeadsToWhatItNames(t *testing.T) {
	page := string(openapi.Page())
	ids := map[string]bool{}
	for _, match := range regexp.MustCompile(`id="([^"]+)"`).FindAllStringSubmatch(page, -1) {
		if ids[match[1]] {
			t.Errorf("the page has two places with the id %s, want one", match[1])
		}
		ids[match[1]] = true
	}
	for _, match := range regexp.MustCompile(`(?:href="#|aria-labelledby=")([^"]+)"`).FindAllStringSubmatch(page, -1) {
		if !ids[match[1]] {
			t.Errorf("the page refers to %s, want a place with that id", match[1])
		}
	}
	text := html.UnescapeString(regexp.MustCompile(`<[^>]*>`).ReplaceAllString(page, ""))
	document := published(t)
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
	for name, get := range map[string]func() []byte{"document": openapi.Document, "page": openapi.Page, "packed document": openapi.PackedDocument, "packed page": openapi.PackedPage} {
		want := get()
		clear(get())
		if !bytes.Equal(get(), want) {
			t.Errorf("the %s was overwritten by a caller, want each call to return a copy", name)
		}
	}
}
