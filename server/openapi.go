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

// published is a document that only changes with the program: a client caches it, and asks whether
// it is still the same.
type published struct {
	media, tag string
	text       []byte
}

func publish(media string, text []byte) published {
	sum := sha256.Sum256(text)
	return published{media, `"` + hex.EncodeToString(sum[:16]) + `"`, text}
}

// documents serves the OpenAPI document, and its page, which the first request for it makes: making
// it at start would take most of the time of a start.
func documents(at part) {
	document := publish("application/yaml", openapi.Document())
	page := sync.OnceValue(func() published { return publish(echo.MIMETextHTMLCharsetUTF8, openapi.Page()) })
	at.add("GET,HEAD /openapi.yaml", "", document.send)
	at.add("GET,HEAD /docs", "", func(c echo.Context) error {
		c.Response().Header().Set(echo.HeaderContentSecurityPolicy, openapi.PagePolicy())
		return page().send(c)
	})
}

func (p published) send(c echo.Context) error {
	header := c.Response().Header()
	header.Set("ETag", p.tag)
	header.Set(echo.HeaderCacheControl, "no-cache")
	if p.isKnown(c.Request().Header) {
		return c.NoContent(http.StatusNotModified)
	}
	return c.Blob(http.StatusOK, p.media, p.text)
}

// isKnown reports whether the client has it already.
func (p published) isKnown(header http.Header) bool {
	for _, field := range header.Values("If-None-Match") {
		for tag := range strings.SplitSeq(field, ",") {
			if tag = strings.TrimSpace(tag); tag == "*" || strings.TrimPrefix(tag, "W/") == p.tag {
				return true
			}
		}
	}
	return false
}
