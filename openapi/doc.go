// Package openapi holds the OpenAPI 3.1 document of the HTTP interface, which is written by hand,
// and a page for people that is made from it.
//
// What holds: the page says nothing that the document does not say. Its one script shows one
// operation at a time, searches, and sends what a reader tries to the page's own server; without it
// the page shows everything. [PagePolicy] lets a browser hold it to that. What the document says of
// the server is not this package's business: the tests compare every answer of the server with it.
//
// The page is a file, docs.html.gz, so that no program carries what makes it, and a program carries
// page and document packed. After a change of openapi.yaml, page.tmpl, page.css or page.js, make
// both files anew: go test ./openapi -run TestPageIsMadeFromTheDocument -update.
package openapi

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"io"
	"slices"
	"strings"
	"sync"
)

//go:embed openapi.yaml.gz
var document []byte

//go:embed docs.html.gz
var page []byte

// Document is the document in YAML. The slice is the caller's.
func Document() []byte { return unpacked(document) }

// PackedDocument is Document as gzip has it. The slice is the caller's.
func PackedDocument() []byte { return slices.Clone(document) }

// Page is the document as HTML, the caller's own. All of the package is safe for concurrent use.
func Page() []byte { return unpacked(page) }

// PackedPage is Page as gzip has it. The slice is the caller's.
func PackedPage() []byte { return slices.Clone(page) }

func unpacked(packed []byte) []byte {
	reader, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		panic(err) // a programmer's mistake, as below
	}
	text, err := io.ReadAll(reader)
	if err != nil {
		panic(err)
	}
	return text
}

// PagePolicy is the Content-Security-Policy of the page: its own style sheet and script, calls of
// its own server, and nothing else.
func PagePolicy() string { return policy() }

var policy = sync.OnceValue(func() string {
	page := string(Page())
	return "default-src 'none'; style-src " + digestOf(inside(page, "style")) + "; script-src " + digestOf(inside(page, "script")) +
		"; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; " +
		"trusted-types 'none'"
})

// inside is what a page has in the one element of that name.
func inside(page, element string) string {
	_, rest, _ := strings.Cut(page, "<"+element+">")
	text, _, _ := strings.Cut(rest, "</"+element+">")
	return text
}

// digestOf names a style sheet or a script in a policy.
func digestOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}
