// Package openapi holds the OpenAPI 3.1 document of the HTTP interface, which is written by hand,
// and a page for people that is made from it.
//
// What holds: the page says nothing that the document does not say. Its one script shows one
// operation at a time, searches, and sends what a reader tries to the page's own server; without it
// the page shows everything. [PagePolicy] lets a browser hold it to that. What the
// document says of the server is not this package's business: the tests compare every answer of the
// server with it.
package openapi

import (
	_ "embed"
	"slices"
	"sync"
)

//go:embed openapi.yaml
var document []byte

// Document is the document in YAML. The slice is the caller's.
func Document() []byte { return slices.Clone(document) }

// Page is the document as a page in HTML. The slice is the caller's. The page is made with the
// first call; it is safe for concurrent use, as all of the package.
func Page() []byte { return slices.Clone(page().html) }

// PagePolicy is the Content-Security-Policy of the page: its own style sheet and
// script, calls of its own server, and nothing else.
func PagePolicy() string { return page().policy }

// page is made once. A document that cannot be read is a programmer's mistake, which the tests
// find.
var page = sync.OnceValue(func() madePage {
	made, err := makePage(document)
	if err != nil {
		panic(err)
	}
	return made
})
