package server

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strings"
	"sync"

	"github.com/labstack/echo/v4"

	"github.com/coatcheck/coatcheck/openapi"
)

// published is a document that only changes with the program: clients cache and revalidate it.
type published struct {
	media, tag string
	packed     []byte
	text       func() []byte // made for the first client that does not take gzip
}

func publish(media string, packed []byte, text func() []byte) published {
	sum := sha256.Sum256(packed)
	return published{media, hex.EncodeToString(sum[:16]), packed, sync.OnceValue(text)}
}

// documents serves the OpenAPI document, and its page.
func documents(at part) {
	document := publish("application/yaml", openapi.PackedDocument(), openapi.Document)
	page := publish(echo.MIMETextHTMLCharsetUTF8, openapi.PackedPage(), openapi.Page)
	at.add("GET,HEAD /openapi.yaml", "", textPrice, document.send)
	at.add("GET,HEAD /docs", "", textPrice, func(c echo.Context) error {
		c.Response().Header().Set(echo.HeaderContentSecurityPolicy, openapi.PagePolicy())
		return page.send(c)
	})
}

func (p published) send(c echo.Context) error {
	header, zipped := c.Response().Header(), takesGzip(c.Request().Header)
	form := "0" // the two forms have tags of their own
	if zipped {
		form = "1"
	}
	header.Set("ETag", `"`+p.tag+form+`"`)
	header.Set(echo.HeaderCacheControl, "no-cache")
	header.Add(echo.HeaderVary, echo.HeaderAcceptEncoding)
	if p.isKnown(c.Request().Header) {
		return c.NoContent(http.StatusNotModified)
	}
	if zipped {
		header.Set(echo.HeaderContentEncoding, "gzip")
		return c.Blob(http.StatusOK, p.media, p.packed)
	}
	return c.Blob(http.StatusOK, p.media, p.text())
}

// takesGzip reports whether a client names gzip among what it takes.
func takesGzip(header http.Header) bool {
	for _, field := range header.Values(echo.HeaderAcceptEncoding) {
		for one := range strings.SplitSeq(field, ",") {
			name, weight, weighed := strings.Cut(one, ";")
			if strings.EqualFold(strings.TrimSpace(name), "gzip") {
				return !weighed || strings.ContainsAny(weight, "123456789")
			}
		}
	}
	return false
}

// isKnown reports whether the client has it already.
func (p published) isKnown(header http.Header) bool {
	for _, field := range header.Values("If-None-Match") {
		for tag := range strings.SplitSeq(field, ",") {
			if tag = strings.TrimSpace(tag); tag == "*" || p.isTag(strings.TrimPrefix(tag, "W/")) {
				return true
			}
		}
	}
	return false
}

// isTag reports whether a tag is that of one of the forms.
func (p published) isTag(tag string) bool { return tag == `"`+p.tag+`0"` || tag == `"`+p.tag+`1"` }
