package console_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/console"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

func ask(method, path string, header ...string) *httptest.ResponseRecorder {
	request := httptest.NewRequest(method, path, http.NoBody)
	for _, one := range header {
		name, value, _ := strings.Cut(one, ": ")
		request.Header.Set(name, value)
	}
	answer := httptest.NewRecorder()
	if !console.Serve(answer, request, strings.TrimPrefix(path, "/console/")) {
		answer.WriteHeader(http.StatusNotFound)
	}
	return answer
}

func TestFilesHaveTheirTypesAndThePolicy(t *testing.T) {
	entries, err := os.ReadDir("static")
	if err != nil {
		t.Fatalf("listing the files: %v", err)
	}
	types := map[string]string{"html": "text/html; charset=utf-8", "js": "text/javascript; charset=utf-8", "css": "text/css; charset=utf-8", "svg": "image/svg+xml", "txt": "text/plain; charset=utf-8"}
	for _, entry := range entries {
		got := ask("GET", "/console/"+entry.Name())
		_, kind, _ := strings.Cut(entry.Name(), ".")
		want, err := os.ReadFile("static/" + entry.Name())
		if err != nil {
			t.Fatalf("reading %s: %v", entry.Name(), err)
		}
		asked := "GET /console/" + entry.Name()
		expect.Equal(t, asked+": status", got.Code, 200)
		expect.Equal(t, asked+": body", got.Body.String(), string(want))
		expect.Equal(t, asked+": Content-Type", got.Header().Get("Content-Type"), types[kind])
		for name, value := range map[string]string{"Content-Security-Policy": console.Policy, "X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY", "Referrer-Policy": "no-referrer", "Cache-Control": "no-cache"} {
			if got.Header().Get(name) != value {
				t.Errorf("%s: %s is %q", entry.Name(), name, got.Header().Get(name))
			}
		}
		if again := ask("GET", "/console/"+entry.Name(), "If-None-Match: "+got.Header().Get("ETag")); again.Code != 304 || again.Body.Len() > 0 {
			t.Errorf("%s asked for again: %d", entry.Name(), again.Code)
		}
		if head := ask("HEAD", "/console/"+entry.Name()); head.Code != 200 || head.Body.Len() > 0 {
			t.Errorf("HEAD %s: %d", entry.Name(), head.Code)
		}
	}
	for _, directive := range []string{"default-src 'none'", "script-src 'self'", "style-src 'self'", "connect-src 'self'", "img-src 'self' data:", "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'"} {
		if strings.Count(console.Policy, directive+";") != 1 {
			t.Errorf("the policy lacks %s", directive)
		}
	}
}

func TestOnlyWhatIsThereIsAnswered(t *testing.T) {
	page := ask("GET", "/console/")
	expect.Equal(t, "GET /console/: status", page.Code, 200)
	expect.Contains(t, "GET /console/", page.Body.String(), "<title>coatcheck console</title>")
	for _, path := range []string{"/console/x.js", "/console/static/main.js", "/console/../console.go", "/console/..%2fconsole.go", "/console/static", "/console/."} {
		expect.Equal(t, "GET "+path+": status", ask("GET", path).Code, 404)
	}
}

// What makes HTML or code of text, and what asks other servers, is not in the page at all.
func TestSourcesHaveNothingThatRunsText(t *testing.T) {
	entries, err := os.ReadDir("static")
	if err != nil {
		t.Fatalf("listing the files: %v", err)
	}
	forbidden := regexp.MustCompile(`innerHTML|outerHTML|insertAdjacent|document\.write|\beval\b|new Function|setAttribute\('(?:style|on)|javascript:|\bstyle="|sessionStorage\.setItem|\bdocument\.cookie|DOMParser|srcdoc`)
	address := regexp.MustCompile(`(?:https?:)?//[a-z0-9.-]+\.[a-z]+[^ ]*`)
	for _, entry := range entries {
		text, err := os.ReadFile("static/" + entry.Name())
		if err != nil {
			t.Fatalf("reading %s: %v", entry.Name(), err)
		}
		found := forbidden.FindAllString(string(text), -1)
		if !strings.HasPrefix(entry.Name(), "uplot") { // whose comment has an address
			found = append(found, address.FindAllString(string(text), -1)...)
		}
		for _, found := range found {
			if found == "sessionStorage.setItem" && entry.Name() == "key.js" {
				continue
			}
			if found != "http://www.w3.org/2000/svg';" && !strings.HasPrefix(found, "http://www.w3.org/2000/svg") {
				t.Errorf("%s has %s", entry.Name(), found)
			}
		}
	}
	page, err := os.ReadFile("static/index.html")
	if err != nil {
		t.Fatalf("reading index.html: %v", err)
	}
	if regexp.MustCompile(`<script(?:[^>]*)>[^<]|<style| on[a-z]+=`).Match(page) {
		t.Error("the page has a script or a style in line")
	}
}
