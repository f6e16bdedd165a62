package compat

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/coatcheck/coatcheck/internal/frontdoor"
)

// javaFault answers as Spring Boot 1.5 does, which both systems are built on.
func javaFault(c echo.Context, status int, exception, message string) error {
	return javaJSON(c, status, struct {
		Timestamp int64  `json:"timestamp"`
		Status    int    `json:"status"`
		Error     string `json:"error"`
		Exception string `json:"exception"`
		Message   string `json:"message"`
		Path      string `json:"path"`
	}{time.Now().UnixMilli(), status, http.StatusText(status), exception, message, frontdoor.RawPath(c.Request().URL)})
}

// javaText answers with a text and nothing after it.
func javaText(c echo.Context, text string) error {
	noStore(c)
	return c.Blob(http.StatusOK, "text/plain;charset=UTF-8", []byte(text))
}

// javaJSON answers with JSON, in which < > & stand as they are, and nothing after it.
func javaJSON(c echo.Context, status int, message any) error {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(message); err != nil {
		return err
	}
	noStore(c)
	return c.Blob(status, "application/json;charset=UTF-8", bytes.TrimSuffix(text.Bytes(), []byte("\n")))
}

// maxForm bounds a form in bytes: its caller is unknown, and it holds a name, number and token.
const maxForm = 8 << 10

// form reads the parameters of the query and of a form in the body. It skips badly encoded ones.
func form(c echo.Context) error {
	if request := c.Request(); request.Form == nil && request.Body != nil {
		request.Body = http.MaxBytesReader(c.Response().Writer, request.Body, maxForm)
	}
	err := c.Request().ParseForm()
	if tooLarge, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return tooLarge
	}
	if errors.Is(err, frontdoor.ErrOverloaded) {
		return err
	}
	return nil
}

// noStore marks an answer that no cache may store.
func noStore(c echo.Context) { c.Response().Header().Set(echo.HeaderCacheControl, "no-store") }
