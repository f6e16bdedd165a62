package server_test

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"regexp"
	"slices"
	"testing"

	"github.com/coatcheck/coatcheck/access"
	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/testing/apitest"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/openapi"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/server"
)

// A route that is added says what it is in the document, too, and the role that it needs there is
// the one that is asked for.
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
	expect.Equal(t, "the role of each route in the document, and that which the server asks for", documented, served)
	if len(served) < 60 {
		t.Errorf("only %d routes were looked at, want 60 at least", len(served))
	}
}

func TestTheDocumentHasEveryCodeAsTheServerHasIt(t *testing.T) {
	text, err := json.Marshal(apitest.Published().Document.Components.Schemas["ProblemCode"].Value)
	expect.NoError(t, "writing schema ProblemCode", err)
	var documented struct {
		Enum     []api.Code `json:"x-extensible-enum"` //nolint:tagliatelle // an extension's name
		Problems map[api.Code]struct {
			Status    int    `json:"status"`
			Retryable bool   `json:"retryable"`
			When      string `json:"when"`
		} `json:"x-coatcheck-problems"` //nolint:tagliatelle // an extension's name
	}
	if err := json.Unmarshal(text, &documented); err != nil {
		t.Fatalf("reading schema ProblemCode: %v: %s", err, text)
	}
	slices.Sort(documented.Enum)
	expect.Equal(t, "the codes of the document, and those of the server", documented.Enum, api.Codes())
	expect.Equal(t, "number of problems that the document explains", len(documented.Problems), len(documented.Enum))
	for code, problem := range documented.Problems {
		kind, known := api.Lookup(code)
		if !known || problem.Status != kind.Status || problem.Retryable != kind.Retryable || problem.When == "" {
			t.Errorf("%s: the document has %+v, the server %+v", code, problem, kind)
		}
	}
}

// What an example of a problem shows is what the server would say.
func TestTheDocumentsProblemsAreThoseOfTheCatalogue(t *testing.T) {
	shown := map[api.Code]bool{}
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
			expect.NoError(t, "writing an example of response "+name, err)
			var problem api.Problem
			if err := strictly(text, &problem); err != nil || problem.Code == "" {
				continue // there is none, or several in its place
			}
			kind, _ := api.Lookup(problem.Code)
			if shown[problem.Code] = true; problem.Title != kind.Title || problem.Status != kind.Status || problem.Retryable != kind.Retryable {
				t.Errorf("%s shows %+v, and it is %+v", name, problem, kind)
			}
		}
	}
	for _, code := range api.Codes() {
		if !shown[code] && !slices.Contains([]api.Code{api.UpstreamUnavailable, api.RouteUnknown, api.PathNotPlain}, code) {
			t.Errorf("no answer shows %s", code)
		}
	}
}

func TestTheDocumentAndItsPageAreServed(t *testing.T) {
	t.Parallel()
	s := onEmbedded(t)
	for path, want := range map[string]struct {
		media        string
		text, packed []byte
	}{
		"/openapi.yaml": {"application/yaml", openapi.Document(), openapi.PackedDocument()},
		"/docs":         {"text/html; charset=UTF-8", openapi.Page(), openapi.PackedPage()},
	} {
		tags := map[string]bool{}
		for accept, coding := range map[string]string{
			"gzip": "gzip", "br, GZIP;q=0.5": "gzip", "gzip ; q=1": "gzip", "deflate, gzip;q=1.0, *;q=0.5": "gzip",
			"identity": "", "gzip;q=0": "", "br, gzip; q=0.000": "", "xgzip": "", "*": "",
		} {
			a := s.do(t, "GET", path, "", "Accept-Encoding: "+accept)
			a.wantStatus(t, 200)
			a.wantHeader(t, "Content-Type", want.media)
			a.wantHeader(t, "Content-Encoding", coding)
			a.wantHeader(t, "Vary", "Accept-Encoding")
			a.wantHeader(t, "Cache-Control", "no-cache")
			if coding == "gzip" {
				a.wantBody(t, string(want.packed))
			} else {
				a.wantBody(t, string(want.text))
			}
			tag := a.header.Get("ETag")
			tags[tag] = true
			head := s.do(t, "HEAD", path, "", "Accept-Encoding: "+accept)
			head.wantStatus(t, 200)
			head.wantHeader(t, "ETag", tag)
			head.wantBody(t, "")
			for header, status := range map[string]int{tag: 304, `"x", W/` + tag: 304, "*": 304, `"x"`: 200, tag[1:]: 200} {
				again := s.do(t, "GET", path, "", "If-None-Match: "+header)
				again.wantStatus(t, status)
				if status == 304 {
					again.wantBody(t, "")
				}
			}
		}
		expect.Equal(t, path+": tags of two forms", len(tags), 2)
		checkProblem(t, s.do(t, "POST", path, ""), api.MethodNotAllowed)
	}
}

// The browser is told to load nothing; the one style sheet and the one script of the page are
// allowed by their digests, and the script may ask only this server.
func TestThePageOfTheDocumentKeepsToItsPolicy(t *testing.T) {
	t.Parallel()
	a := onEmbedded(t).do(t, "GET", "/docs", "")
	policy := a.header.Get("Content-Security-Policy")
	style := regexp.MustCompile(`(?s)<style>(.*?)</style>`).FindAllSubmatch(a.body, -1)
	if len(style) != 1 {
		t.Fatalf("GET /docs: got %d style sheets, want 1", len(style))
	}
	sum := sha256.Sum256(style[0][1])
	script := regexp.MustCompile(`(?s)<script>(.*?)</script>`).FindAllSubmatch(a.body, -1)
	if len(script) != 1 {
		t.Fatalf("GET /docs: got %d scripts, want 1", len(script))
	}
	ran := sha256.Sum256(script[0][1])
	for _, part := range []string{
		"script-src 'sha256-" + base64.StdEncoding.EncodeToString(ran[:]) + "';", "connect-src 'self';", "require-trusted-types-for 'script'; trusted-types 'none'",
	} {
		expect.Contains(t, "GET /docs: header Content-Security-Policy", policy, part)
	}
	for _, part := range []string{"default-src 'none';", "style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "';", "frame-ancestors 'none'"} {
		expect.Contains(t, "GET /docs: header Content-Security-Policy", policy, part)
	}
	if bad := regexp.MustCompile(`(?i)<script |innerHTML|<link|<img|<iframe|\sstyle=|\son[a-z]+=|(?:href|src)="(?:[a-z]+:)?//`).Find(a.body); bad != nil {
		t.Errorf("GET /docs: the page has %q, want nothing that runs or loads", bad)
	}
}
