package server_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/access"
	"github.com/coatcheck/coatcheck/internal/apitest"
	"github.com/coatcheck/coatcheck/internal/storetest"
	"github.com/coatcheck/coatcheck/internal/wire"
	"github.com/coatcheck/coatcheck/openapi"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/server"
)

// A route that is added says what it is in the document, too, and the role that it needs there is the one that is asked for.
func TestTheDocumentAndTheRoutesAreOneSet(t *testing.T) {
	s := serve(t, server.Config{Store: storetest.Open(t, redisstore.Config{}), Dev: true})
	documented, served := apitest.Published().Roles(), map[string]string{}
	for _, route := range s.server.Routes() {
		role := route.Role.String()
		if route.Role == access.None {
			role = "open"
		}
		served[route.Method+" "+route.Path] = role
	}
	for route, role := range served {
		if documented[route] != role {
			t.Errorf("%s needs the role %q, and the document says %q", route, role, documented[route])
		}
	}
	for route := range documented {
		if _, ok := served[route]; !ok {
			t.Errorf("%s is in the document and not served", route)
		}
	}
	if len(served) < 60 {
		t.Errorf("only %d routes were looked at", len(served))
	}
}

func TestTheDocumentHasEveryCodeAsTheServerHasIt(t *testing.T) {
	text, err := json.Marshal(apitest.Published().Document.Components.Schemas["ProblemCode"].Value)
	if err != nil {
		t.Fatal(err)
	}
	var documented struct {
		Enum     []wire.Code `json:"enum"`
		Problems map[wire.Code]struct {
			Status    int    `json:"status"`
			Retryable bool   `json:"retryable"`
			When      string `json:"when"`
		} `json:"x-coatcheck-problems"` //nolint:tagliatelle // an extension's name
	}
	if err := json.Unmarshal(text, &documented); err != nil {
		t.Fatal(err)
	}
	slices.Sort(documented.Enum)
	if !slices.Equal(documented.Enum, wire.Codes()) || len(documented.Problems) != len(documented.Enum) {
		t.Errorf("the document has %q, the server %q", documented.Enum, wire.Codes())
	}
	for code, problem := range documented.Problems {
		kind, known := wire.Lookup(code)
		if !known || problem.Status != kind.Status || problem.Retryable != kind.Retryable || problem.When == "" {
			t.Errorf("%s: the document has %+v, the server %+v", code, problem, kind)
		}
	}
}

// What an example of a problem shows is what the server would say.
func TestTheDocumentsProblemsAreThoseOfTheCatalogue(t *testing.T) {
	shown := map[wire.Code]bool{}
	for name, response := range apitest.Published().Document.Components.Responses {
		content := response.Value.Content["application/problem+json"]
		if content == nil {
			continue
		}
		examples := []any{content.Example}
		for _, example := range content.Examples {
			examples = append(examples, example.Value.Value)
		}
		for _, example := range examples {
			text, err := json.Marshal(example)
			if err != nil {
				t.Fatal(err)
			}
			var problem wire.Problem
			if err := strictly(text, &problem); err != nil || problem.Code == "" {
				continue // there is none, or several in its place
			}
			kind, _ := wire.Lookup(problem.Code)
			if shown[problem.Code] = true; problem.Title != kind.Title || problem.Status != kind.Status || problem.Retryable != kind.Retryable {
				t.Errorf("%s shows %+v, and it is %+v", name, problem, kind)
			}
		}
	}
	for _, code := range wire.Codes() {
		if !shown[code] && code != wire.UpstreamUnavailable {
			t.Errorf("no answer shows %s", code)
		}
	}
}

func TestTheDocumentAndItsPageAreServed(t *testing.T) {
	s := onEmbedded(t)
	for path, want := range map[string]struct {
		media string
		text  []byte
	}{
		"/openapi.yaml": {"application/yaml", openapi.Document()},
		"/docs":         {"text/html; charset=UTF-8", openapi.Page()},
	} {
		a := s.do(t, "GET", path, "")
		if a.status != 200 || a.header.Get("Content-Type") != want.media || !bytes.Equal(a.body, want.text) || a.header.Get("Cache-Control") != "no-cache" {
			t.Errorf("%s: %d %v, %d bytes", path, a.status, a.header, len(a.body))
		}
		if head := s.do(t, "HEAD", path, ""); head.status != 200 || len(head.body) != 0 || head.header.Get("ETag") != a.header.Get("ETag") {
			t.Errorf("HEAD %s: %d %v", path, head.status, head.header)
		}
		tag := a.header.Get("ETag")
		for header, status := range map[string]int{tag: 304, `"x", W/` + tag: 304, "*": 304, `"x"`: 200, tag[1:]: 200} {
			if again := s.do(t, "GET", path, "", "If-None-Match: "+header); again.status != status || status == 304 && len(again.body) != 0 {
				t.Errorf("%s with %s: %d", path, header, again.status)
			}
		}
		checkProblem(t, s.do(t, "POST", path, ""), wire.MethodNotAllowed)
	}
}

// The browser is told to run and load nothing; the one style sheet of the page is allowed by its digest.
func TestThePageOfTheDocumentKeepsToItsPolicy(t *testing.T) {
	a := onEmbedded(t).do(t, "GET", "/docs", "")
	policy := a.header.Get("Content-Security-Policy")
	style := regexp.MustCompile(`(?s)<style>(.*?)</style>`).FindAllSubmatch(a.body, -1)
	if len(style) != 1 {
		t.Fatalf("%d style sheets", len(style))
	}
	sum := sha256.Sum256(style[0][1])
	for _, part := range []string{"default-src 'none';", "style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "';", "frame-ancestors 'none'"} {
		if !strings.Contains(policy, part) {
			t.Errorf("%q lacks %q", policy, part)
		}
	}
	if bad := regexp.MustCompile(`(?i)<script|<link|<img|<iframe|\sstyle=|\son[a-z]+=|(?:href|src)="(?:[a-z]+:)?//`).Find(a.body); bad != nil {
		t.Errorf("the page has %q", bad)
	}
}
