package muxpattern

import (
	"net/http"
	"strings"
	"testing"
)

// The mux takes what has no fault, and a fault names no source file.
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
		if strings.Contains(fault, ".go:") {
			t.Fatalf("Fault of %q names a source file: %s", pattern, fault)
		}
	})
}
