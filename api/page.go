package api

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"html"
)

// Page is the HTML page that a problem's type links to; ok is false for an unknown code.
func Page(code Code) (page string, ok bool) {
	kind, ok := Lookup(code)
	if !ok {
		return "", false
	}
	retry := "Repeating the same request does not help."
	if kind.Retryable {
		retry = "The same request may succeed later; repeating it does no harm."
	}
	return fmt.Sprintf(pageForm, kind.Title, html.EscapeString(string(code)), kind.Status, kind.Title, kind.Help, retry), true
}

const pageStyle = "body{font:1rem/1.5 system-ui,sans-serif;max-width:40rem;margin:3rem auto;padding:0 1rem}"

// PagePolicy is the Content-Security-Policy of these pages: their own style sheet alone.
var PagePolicy = func() string {
	style := sha256.Sum256([]byte(pageStyle))
	return "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(style[:]) +
		"'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
}()

const pageForm = `<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<meta name="color-scheme" content="light dark"><title>%s</title>
<style>` + pageStyle + `</style>
<body>
<p><code>%s</code> · HTTP %d</p>
<h1>%s</h1>
<p>%s</p>
<p>%s</p>
</body></html>
`
