package muxpattern

import (
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

var meant = regexp.MustCompile(`did you mean ("(?:[^"\\]|\\.)*")\?`)

// What is without a fault the mux takes, and so is what is suggested.
func FuzzFault(f *testing.F) {
	for _, pattern := range []string{
		"POST /orders/{id}", "post orders/:id", "POST /a/{x", "POST /{a}/{a}", "/{...rest}/{$}/x", "POST Shop.example/a?b", "GET /a/{b-c}.json", "P\u041eST /", "POST /a\uff0f\uff5bb\uff5d",
		"POST /{ a }/ ", "PUT https://x.example//a/../b", "PATCH /a/*b", "/%zz", "POST {a}", "", " ", "/{{a}}", "POST /a,/b", "POST shop\u3002example/x", "POST /[...a]/<int:b>", "POST\t/a$",
	} {
		f.Add(pattern)
	}
	f.Fuzz(func(t *testing.T, pattern string) {
		fault := Fault(pattern)
		if err := Register(http.NewServeMux(), pattern); err != nil && fault == "" {
			t.Fatalf("Fault of %q is none, and the mux refuses it: %v", pattern, err)
		}
		if strings.Contains(fault, "net/http") {
			t.Fatalf("Fault of %q is told in the mux's words: %s", pattern, fault)
		}
		for _, found := range meant.FindAllStringSubmatch(fault, -1) {
			suggested, err := strconv.Unquote(found[1])
			if err != nil || Fault(suggested) != "" || suggested == pattern {
				t.Fatalf("Fault of %q is %s, and of what that suggests %q", pattern, fault, Fault(suggested))
			}
		}
	})
}
