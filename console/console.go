// Package console is the web page for operators: plain ES modules and custom elements, embedded.
//
// The promises: the page asks no server but the one that it came from, and its policy forbids the
// browser anything else, inline scripts and styles included; text that the server answers with is
// shown as text and never read as HTML, which Trusted Types enforce; an API key that a user types
// in stays in the session storage of its tab, which a reload keeps and closing the tab ends, and
// nowhere else; no token is in an address, in a log of the page or in storage. The page has no
// rights of its own: all that it does is a call of the HTTP interface. uPlot, which draws the plot,
// is not ours: uplot.js, uplot.css and licence-uplot.txt are as published.
package console

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"net/http"
	"path"
	"sync"
	"time"
)

//go:embed static
var static embed.FS

// Policy is the Content-Security-Policy of the page.
const Policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; base-uri 'none'; " +
	"form-action 'none'; frame-ancestors 'none'; " +
	"require-trusted-types-for 'script'; trusted-types 'none'"

var types = map[string]string{
	".html": "text/html; charset=utf-8",
	".css":  "text/css; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".svg":  "image/svg+xml",
	".txt":  "text/plain; charset=utf-8",
}

type file struct {
	kind string
	tag  string // changes with the content
	body []byte
}

// files are made when the page is first used.
var files = sync.OnceValue(load)

// load reads what is embedded. A file of a kind that has no type is a programmer's mistake.
func load() map[string]file {
	all := map[string]file{}
	entries, err := static.ReadDir("static")
	if err != nil {
		panic(err)
	}
	for _, entry := range entries {
		body, err := static.ReadFile("static/" + entry.Name())
		kind := types[path.Ext(entry.Name())]
		if err != nil || kind == "" {
			panic("console: no type for " + entry.Name())
		}
		sum := sha256.Sum256(body)
		all[entry.Name()] = file{kind, `"` + base64.RawURLEncoding.EncodeToString(sum[:12]) + `"`, body}
	}
	return all
}

// Serve answers GET and HEAD with a file of the page, "" for the page itself, and reports whether
// there is one of that name; without one it writes nothing.
func Serve(w http.ResponseWriter, r *http.Request, name string) bool {
	name = cmp.Or(name, "index.html")
	file, ok := files()[name]
	if !ok {
		return false
	}
	header := w.Header()
	header.Set("Content-Type", file.kind)
	header.Set("Content-Security-Policy", Policy)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("X-Frame-Options", "DENY")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Cross-Origin-Opener-Policy", "same-origin")
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	// may be kept, and is asked for: a new version shows at once
	header.Set("Cache-Control", "no-cache")
	header.Set("ETag", file.tag)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(file.body))
	return true
}
