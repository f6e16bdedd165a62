// Package openapi holds the OpenAPI 3.1 document of the HTTP interface, which is written by hand,
// and a page for people that is made from it.
//
// What holds: the page says nothing that the document does not say. Its one script shows one
// operation at a time, searches, and sends what a reader tries to the page's own server; without it
// the page shows everything. [PagePolicy] lets a browser hold it to that. What the document says of
// the server is not this package's business: the tests compare every answer of the server with it.
//
// The page is a file, docs.html, so that no program carries what makes it. After a change of the
// document, or of page.tmpl, page.css and page.js, make it anew: go test ./openapi -run
// TestPageIsMadeFromTheDocument -update.
package openapi

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"slices"
	"strings"
	"sync"
)

//go:embed openapi.yaml
var document []byte

//go:embed docs.html
var page string

// Document is the document in YAML. The slice is the caller's.
func Document() []byte { return slices.Clone(document) }

// Page is the document as a page in HTML. The slice is the caller's. It is safe for concurrent use,
// as all of the package.
func Page() []byte { return []byte(page) }

// PagePolicy is the Content-Security-Policy of the page: its own style sheet and script, calls of
// its own server, and nothing else.
func PagePolicy() string { return policy() }

var policy = sync.OnceValue(func() string {
	return "default-src 'none'; style-src " + digestOf(inside("style")) + "; script-src " + digestOf(inside("script")) +
		"; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
})

// inside is what the page has in the one element of that name.
func inside(element string) string {
	_, rest, _ := strings.Cut(page, "<"+element+">")
	text, _, _ := strings.Cut(rest, "</"+element+">")
	return text
}

// digestOf names a style sheet or a script in a policy.
func digestOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}
