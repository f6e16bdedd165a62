package main

import (
	"bytes"
	"io"
	"net/http"
	"net/url"
)

// handlerTransport has a handler of this process answer requests.
type handlerTransport struct{ handler http.Handler }

// RoundTrip answers a request.
func (t handlerTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	asked := r.Clone(r.Context())
	asked.RequestURI = asked.URL.RequestURI() // as net/http reads it from the request line
	asked.URL = &url.URL{Path: asked.URL.Path, RawPath: asked.URL.RawPath, RawQuery: asked.URL.RawQuery}
	asked.RemoteAddr = "127.0.0.1:0"
	if asked.Body == nil {
		asked.Body = http.NoBody
	}
	a := &handled{header: http.Header{}}
	t.handler.ServeHTTP(a, asked)
	a.WriteHeader(http.StatusOK) // unless it has one
	return &http.Response{
		Status: http.StatusText(a.status), StatusCode: a.status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: a.header, Body: io.NopCloser(&a.body), ContentLength: int64(a.body.Len()), Request: r,
	}, nil
}

// handled is what a handler writes.
type handled struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (a *handled) Header() http.Header         { return a.header }
func (a *handled) Write(p []byte) (int, error) { a.WriteHeader(http.StatusOK); return a.body.Write(p) }
func (a *handled) WriteHeader(status int) {
	if a.status == 0 {
		a.status = status
	}
}
